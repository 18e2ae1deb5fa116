"""Specification of how each tick writes its state: as the codec says, each board once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.core.documents import state_codec
from gpumon.core.documents.state_codec import StateTexts, encode_document, state_document
from gpumon.core.state import GpuState, MonitorState
from tests.builders_state import detailed_gpu, device, healthy_gpu, monitor_state, run, starved_gpu

DETAILED = monitor_state(gpus=(detailed_gpu(), healthy_gpu()))


def told_of(gpu: GpuState) -> dict[str, Any]:
    """What the document says of that GPU's board."""
    document = state_document(monitor_state(gpus=(gpu,)), pid=1, address=None)
    written: dict[str, Any] = json.loads(encode_document(document))["gpus"][0]
    return {name: written[name] for name in ("details", "activity", "xid_errors")}


def with_latest(**changes: Any) -> GpuState:
    gpu = detailed_gpu()
    assert gpu.latest is not None
    return gpu._replace(latest=gpu.latest._replace(**changes))


class TestABoard:
    def test_is_told_by_the_names_of_its_fields(self) -> None:
        told = told_of(detailed_gpu())

        assert told["details"]["power_limit_watts"] == 700.0
        assert told["details"]["throttle_reasons"] == ["sw_power_cap"]
        assert told["details"]["persistence_mode"] is True
        assert told["activity"]["sm_active_ratio"] == 0.5
        assert told["xid_errors"] == {"31": 2, "79": 1}

    @pytest.mark.parametrize(
        "gpu",
        [
            starved_gpu(),
            starved_gpu(latest=None),
            detailed_gpu(present=False, error="GPU is lost", xid_errors=()),
        ],
        ids=["does not know", "was never read", "is gone"],
    )
    def test_has_neither_details_nor_activity_where_it(self, gpu: GpuState) -> None:
        assert told_of(gpu) == {"details": None, "activity": None, "xid_errors": {}}

    def test_keeps_its_errors_when_it_is_gone(self) -> None:
        assert told_of(detailed_gpu(present=False))["xid_errors"] == {"31": 2, "79": 1}

    def test_that_says_what_is_no_number_says_nothing_there(self) -> None:
        latest = detailed_gpu().latest
        assert latest is not None
        assert latest.details is not None
        odd = latest.details._replace(power_limit_watts=float("nan"), fan_speed_ratio=float("inf"))

        told = told_of(with_latest(details=odd))

        assert told["details"]["power_limit_watts"] is None
        assert told["details"]["fan_speed_ratio"] is None


class TestTheTexts:
    @pytest.mark.parametrize(
        "state",
        [
            DETAILED,
            monitor_state(),
            monitor_state(gpus=()),
            monitor_state(
                gpus=(with_latest(activity=None),), runs=(run("\x01"), run('"\\u0001":0'))
            ),
            monitor_state(gpus=(detailed_gpu(present=False, error='"\x01":0'),)),
        ],
        ids=[
            "with details",
            "without",
            "without GPUs",
            "with hostile names",
            "of a GPU that is gone",
        ],
    )
    def test_are_what_the_codec_makes_of_a_state(self, state: MonitorState) -> None:
        texts = StateTexts()
        whole = encode_document(state_document(state, pid=7, address="127.0.0.1:1"))

        assert texts.encode(DETAILED, pid=7, address="127.0.0.1:1")
        assert texts.encode(state, pid=7, address="127.0.0.1:1") == whole
        assert texts.encode(state, pid=7, address="127.0.0.1:1") == whole

    def test_write_the_same_details_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[str] = []

        def counted(gpu: GpuState) -> dict[str, Any]:
            written.append(gpu.device.uuid)
            return {"details": len(written)}

        monkeypatch.setattr(state_codec, "board_document", counted)
        texts = StateTexts()

        for _ in range(10):
            texts.encode(DETAILED, pid=1, address=None)

        assert len(written) == 2

    def test_follow_what_a_board_says_anew(self) -> None:
        texts = StateTexts()
        texts.encode(DETAILED, pid=1, address=None)
        newer = monitor_state(gpus=(detailed_gpu(xid_errors=((79, 9),)), healthy_gpu()))

        told = json.loads(texts.encode(newer, pid=1, address=None))["gpus"][0]

        assert told["xid_errors"] == {"79": 9}

    def test_forget_a_gpu_that_has_left(self) -> None:
        texts = StateTexts()
        for number in range(50):
            newest = starved_gpu(device=device(0, f"MIG-{number}"))
            texts.encode(monitor_state(gpus=(healthy_gpu(), newest)), pid=1, address=None)

        assert len(texts._boards) <= 3

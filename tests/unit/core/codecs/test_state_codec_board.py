"""Specification of what the API tells of a GPU's board, beside what the state file has of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.core.codecs.field_codec import encode_document
from gpumon.core.codecs.state_codec import MAX_PROCESSES, board_document, state_document
from gpumon.core.sample import GpuSample, ProcessSample
from gpumon.core.state import GpuState
from tests.builders.report import gpm_fill
from tests.builders.state import detailed_gpu, device, healthy_gpu, monitor_state, starved_gpu


def written(gpu: GpuState) -> dict[str, Any]:
    """What the document says of that GPU's board."""
    told: dict[str, Any] = json.loads(encode_document(board_document(gpu)))
    return told


def told_of(gpu: GpuState) -> dict[str, Any]:
    return {name: written(gpu)[name] for name in ("details", "activity", "xid_errors")}


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

    def test_tells_how_full_a_busy_gpu_is(self) -> None:
        full = board_document(starved_gpu(fill=gpm_fill(0.24, held=0.1)))

        assert board_document(healthy_gpu())["fill"] is None
        assert full["fill"] == {
            "evidence": "gpm", "sm_active_ratio": 0.24, "power_watts": 180.0,
            "power_limit_watts": 700.0, "held_ratio": 0.1,
            "held_mostly_by": "hw_thermal_slowdown", "under_filled": True, "held_down": False,
        }  # fmt: skip

    def test_is_no_part_of_what_is_written_in_each_tick(self) -> None:
        state = monitor_state(gpus=(detailed_gpu(),))

        (told,) = state_document(state, pid=1, address=None)["gpus"]

        assert told.keys().isdisjoint(board_document(detailed_gpu()))


def processes(*listed: ProcessSample, present: bool = True) -> Any:
    """How the document lists those."""
    latest = GpuSample(device=device(), processes=listed)
    return written(healthy_gpu(latest=latest, present=present))["processes"]


class TestAProcess:
    def test_has_pid_memory_and_share(self) -> None:
        assert processes(ProcessSample(4000, 2 << 30, 0.5)) == [
            {"pid": 4000, "memory_used_bytes": 2 << 30, "sm_ratio": 0.5},
        ]  # fmt: skip

    def test_has_a_name_and_a_user_where_they_were_asked_for(self) -> None:
        assert processes(ProcessSample(4000, None, None, "py\x1bthon", "ada")) == [
            {"pid": 4000, "memory_used_bytes": None, "sm_ratio": None, "name": "py\ufffdthon",
             "user": "ada"},
        ]  # fmt: skip


class TestTheListOfProcesses:
    def test_is_unknown_where_the_driver_does_not_tell_or_the_gpu_is_gone(self) -> None:
        assert written(healthy_gpu())["processes"] is None
        assert processes(present=False) is None
        assert processes() == []

    def test_is_bounded_and_shows_who_holds_the_most_memory(self) -> None:
        shown = processes(*(ProcessSample(pid, pid << 20) for pid in range(1, 1000)))

        assert [process["pid"] for process in shown] == list(range(999, 999 - MAX_PROCESSES, -1))

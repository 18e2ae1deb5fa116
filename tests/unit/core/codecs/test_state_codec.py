"""Tests of the gpumon.state/1 document and of what the API adds to it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.codecs import state_codec
from gpumon.core.codecs.field_codec import encode_document
from gpumon.core.codecs.state_codec import (
    MAX_PROCESSES,
    StateEncoder,
    board_document,
    state_document,
)
from gpumon.core.ring_format.runtime_paths import STATE_SCHEMA
from gpumon.core.sample import GpuSample, ProcessSample
from gpumon.core.state import GpuState, MonitorState
from tests.builders.report import gpm_fill
from tests.builders.state import (
    S,
    detailed_gpu,
    device,
    healthy_gpu,
    monitor_state,
    run,
    starved_gpu,
)


def decoded(**changes: Any) -> dict[str, Any]:
    document = state_document(monitor_state(**changes), pid=77, address="127.0.0.1:19835")
    written: dict[str, Any] = json.loads(encode_document(document))
    return written


def of_gpu(gpu: GpuState) -> dict[str, Any]:
    (one,) = decoded(gpus=(gpu,))["gpus"]
    return dict(one)


def test_the_schema_is_named_first() -> None:
    assert next(iter(decoded().items())) == ("schema", "gpumon.state/1")
    assert STATE_SCHEMA == "gpumon.state/1"


class TestTheValues:
    def test_are_counters_in_nanoseconds_that_add_up(self) -> None:
        gpus = decoded()["gpus"]

        assert len(gpus) == 2
        for gpu in gpus:
            parts_ns = gpu["busy_ns"] + sum(gpu["idle_ns"].values()) + gpu["pending_ns"]

            assert parts_ns == gpu["observed_ns"] == 100 * S

    def test_have_causes_reasons_and_phases_by_name(self) -> None:
        document = decoded()

        assert document["gpus"][0]["idle_ns"]["input_wait"] == 30 * S
        assert document["gpus"][0]["input_wait_by_reason_ns"] == {
            "cpu_bound": 20 * S,
            "disk_bound": 10 * S,
        }
        assert document["gpus"][0]["starved_ns"] == 30 * S
        assert document["gpus"][0]["verdict"] == "starved"
        assert document["runs"][0]["phase"] == "input_wait"
        assert document["runs"][0]["phase_seconds"] == {
            "input_wait": 33.0, "train_step": 45.0, "checkpoint": 8.0,
        }  # fmt: skip

    def test_are_only_its_counters_for_a_lost_gpu(self) -> None:
        gone = of_gpu(starved_gpu(present=False, error="NVML 15"))

        assert (gone["busy_ns"], gone["error"]) == (40 * S, "NVML 15")
        assert gone["utilization_ratio"] is gone["energy_joules"] is gone["power_watts"] is None

    def test_stay_short_and_ascii_whatever_a_run_is_called(self) -> None:
        hostile = run("x" * 1_000_000, job="a\nb\udcff", framework="\u202eevil")

        body = encode_document(state_document(monitor_state(runs=(hostile,)), pid=1, address=None))

        assert len(body) < 4_000
        assert body.count(b"\n") == 1
        assert body.isascii()
        assert json.loads(body)["runs"][0]["job"] == "a�b�"


class TestStateEncoder:
    def test_writes_the_bytes_of_the_document(self) -> None:
        encoder = StateEncoder()
        ended, living = run("over", alive=False, phase=None), run("on")
        again = replace(ended, steps=ended.steps + 1)  # what settles after its end
        for runs in ((), (ended,), (ended, living), (again, living), (again,), ()):
            state = monitor_state(runs=runs)

            written = encoder.encode(state, pid=77, address=None)

            assert written == encode_document(state_document(state, pid=77, address=None))

    def test_encodes_gpus_and_runs_again_only_where_they_have_changed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        encoded: list[object] = []

        def noted(document: object) -> bytes:
            encoded.append(document)
            return encode_document(document)

        monkeypatch.setattr(state_codec, "encode_document", noted)
        gpus, runs = (healthy_gpu(), starved_gpu()), (run("one"), run("other"))
        state, encoder = monitor_state(gpus=gpus, runs=runs), StateEncoder()

        def texts_for(state: MonitorState) -> int:
            encoded.clear()
            encoder.encode(state, pid=77, address=None)
            return len(encoded) - 2  # what is before and after them

        assert texts_for(state) == 4
        assert texts_for(state._replace(taken_at_ns=state.taken_at_ns + S)) == 0
        assert texts_for(state._replace(runs=(runs[0], replace(runs[1], steps=1)))) == 1
        hot = gpus[0]._replace(latest=GpuSample(gpus[0].device, temperature_celsius=90.0))
        assert texts_for(state._replace(gpus=(hot, gpus[1]))) == 2  # and the run as before
        assert texts_for(state._replace(gpus=())) == 0


def written(gpu: GpuState) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encode_document(board_document(gpu)))
    return document


class TestBoardDocument:
    def test_has_details_activity_and_errors(self) -> None:
        document = written(detailed_gpu())

        assert document["details"]["power_limit_watts"] == 700.0
        assert document["details"]["throttle_reasons"] == ["sw_power_cap"]
        assert document["details"]["persistence_mode"] is True
        assert document["activity"]["sm_active_ratio"] == 0.5
        assert document["xid_errors"] == {"31": 2, "79": 1}

    def test_has_the_fill_of_a_busy_gpu(self) -> None:
        full = board_document(starved_gpu(fill=gpm_fill(0.24, held=0.1)))

        assert board_document(healthy_gpu())["fill"] is None
        assert full["fill"] == {
            "evidence": "gpm", "sm_active_ratio": 0.24, "power_watts": 180.0,
            "power_limit_watts": 700.0, "held_ratio": 0.1,
            "held_mostly_by": "hw_thermal_slowdown", "under_filled": True, "held_down": False,
        }  # fmt: skip


def processes(*listed: ProcessSample, present: bool = True) -> Any:
    latest = GpuSample(device=device(), processes=listed)
    return written(healthy_gpu(latest=latest, present=present))["processes"]


class TestProcesses:
    def test_have_name_and_user_if_these_are_enabled(self) -> None:
        assert processes(ProcessSample(4000, None, None, "py\x1bthon", "ada")) == [
            {"pid": 4000, "memory_used_bytes": None, "sm_ratio": None, "name": "py\ufffdthon",
             "user": "ada"},
        ]  # fmt: skip

    def test_are_unknown_without_an_answer_or_of_a_lost_gpu(self) -> None:
        assert written(healthy_gpu())["processes"] is None
        assert processes(present=False) is None
        assert processes() == []

    def test_are_bounded_to_those_with_the_most_memory(self) -> None:
        shown = processes(*(ProcessSample(pid, pid << 20) for pid in range(1, 1000)))

        assert [process["pid"] for process in shown] == list(range(999, 999 - MAX_PROCESSES, -1))

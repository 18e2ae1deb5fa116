"""Specification of state.json: a fixed schema that readers of other ages and languages rest on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.codecs.field_codec import FieldCodec, encode_document
from gpumon.core.codecs.state_codec import StateEncoder, state_document
from gpumon.core.ring_format.runtime_paths import STATE_SCHEMA
from gpumon.core.state import GpuState, RunState
from tests.builders.state import S, device, healthy_gpu, monitor_state, run, starved_gpu

FIELDS = [
    "schema", "monotonic_ns", "wall_time_s", "boot_id", "period_ns", "pid", "source", "simulated",
    "replayed", "address", "gpus", "runs", "collectors", "rings_left_out",
]  # fmt: skip
FIELDS_OF = {
    "gpus": {
        "index", "uuid", "name", "present", "observed_ns", "busy_ns", "starved_ns",
        "suspected_ns", "pending_ns", "idle_ns", "in_use_ns", "energy_joules",
        "input_wait_by_reason_ns", "within_step_by_reason_ns",
        "utilization_ratio", "memory_used_bytes", "memory_capacity_bytes", "power_watts",
        "temperature_celsius", "starved_now", "last_sample_ns", "verdict", "now", "error",
        "label", "mig_enabled", "parent_uuid", "listed",
    },
    "runs": {
        "run", "job", "rank", "pid", "framework", "alive", "phase", "steps", "samples",
        "epoch", "gpus", "shares", "wall_seconds", "phase_seconds",
    },
    "collectors": {"name", "success", "duration_seconds", "errors_total", "message"},
}  # fmt: skip


def decoded(**changes: Any) -> dict[str, Any]:
    """The document of a state of which that is so."""
    document = state_document(monitor_state(**changes), pid=77, address="127.0.0.1:19835")
    written: dict[str, Any] = json.loads(encode_document(document))
    return written


def told_of(gpu: GpuState) -> dict[str, Any]:
    """What the document says of that GPU."""
    (told,) = decoded(gpus=(gpu,))["gpus"]
    return dict(told)


class TestTheSchema:
    def test_names_itself_and_its_fields(self) -> None:
        document = decoded()

        assert document["schema"] == STATE_SCHEMA == "gpumon.state/1"
        assert list(document) == FIELDS
        assert {part: document[part][0].keys() for part in FIELDS_OF} == FIELDS_OF

    def test_names_whose_rings_are_not_read(self) -> None:
        assert decoded()["rings_left_out"] == []
        assert decoded(rings_left_out=((65534, 44), (None, 2)))["rings_left_out"] == [
            {"uid": 65534, "rings": 44},
            {"uid": None, "rings": 2},
        ]


class TestTheFigures:
    def test_are_counters_in_whole_nanoseconds_whose_sum_closes(self) -> None:
        gpus = decoded()["gpus"]

        assert len(gpus) == 2
        for gpu in gpus:
            told = gpu["busy_ns"] + sum(gpu["idle_ns"].values()) + gpu["pending_ns"]

            assert told == gpu["observed_ns"] == 100 * S

    def test_name_causes_reasons_and_phases_by_their_words(self) -> None:
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

    def test_leave_out_what_a_device_did_not_answer(self) -> None:
        healthy = told_of(healthy_gpu())

        assert (healthy["power_watts"], healthy["temperature_celsius"]) == (None, 61.0)

    def test_keep_the_counters_of_a_gpu_that_is_gone_and_nothing_else(self) -> None:
        gone = told_of(starved_gpu(present=False, error="NVML 15"))

        assert (gone["busy_ns"], gone["error"]) == (40 * S, "NVML 15")
        assert gone["utilization_ratio"] is gone["energy_joules"] is gone["power_watts"] is None

    def test_are_null_before_the_first_sample(self) -> None:
        fresh = told_of(healthy_gpu(latest=None, last_sample_at_ns=None))

        assert (fresh["utilization_ratio"], fresh["last_sample_ns"]) == (None, None)

    def test_tell_mig_instances_from_gpus(self) -> None:
        part = told_of(healthy_gpu(device=device(2, "MIG-a", parent_uuid="GPU-a", mig_index=1)))

        assert (part["index"], part["label"], part["parent_uuid"]) == (2, "2:1", "GPU-a")
        assert part["mig_enabled"] is False

    def test_tell_of_an_ended_run_that_it_is_in_no_phase(self) -> None:
        (told,) = decoded(runs=(run(alive=False, phase=None, epoch=None),))["runs"]

        assert (told["alive"], told["phase"], told["epoch"]) == (False, None, None)


class TestHostileContent:
    def test_a_name_of_a_megabyte_or_of_broken_bytes_stays_one_short_line_of_ascii(self) -> None:
        hostile = run("x" * 1_000_000, job="a\nb\udcff", framework="\u202eevil")

        body = encode_document(state_document(monitor_state(runs=(hostile,)), pid=1, address=None))

        assert len(body) < 4_000
        assert body.count(b"\n") == 1
        assert body.isascii()
        assert json.loads(body)["runs"][0]["job"] == "a�b�"


class TestAnEncoderOfStates:
    def test_writes_what_the_document_is(self) -> None:
        encoder = StateEncoder()
        ended, living = run("over", alive=False, phase=None), run("on")
        again = replace(ended, steps=ended.steps + 1)  # what settles after its end
        for runs in ((), (ended,), (ended, living), (again, living), (again,), ()):
            state = monitor_state(runs=runs)

            written = encoder.encode(state, pid=77, address=None)

            assert written == encode_document(state_document(state, pid=77, address=None))

    def test_writes_a_run_that_has_ended_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        encoder, written = StateEncoder(), list[str]()
        ended, living = run("over", alive=False, phase=None), run("on")
        encode = FieldCodec.encode

        def noted(codec: Any, value: Any, **more: Any) -> dict[str, Any]:
            if isinstance(value, RunState):
                written.append(value.run)
            return encode(codec, value, **more)

        monkeypatch.setattr(FieldCodec, "encode", noted)
        for _ in range(3):
            encoder.encode(monitor_state(runs=(ended, living)), pid=77, address=None)

        assert written == ["over", "on", "on", "on"]

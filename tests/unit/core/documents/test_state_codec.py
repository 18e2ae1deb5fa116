"""Specification of state.json: a fixed schema that readers of other ages and languages rest on."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gpumon.core.documents.field_codec import encode_document
from gpumon.core.documents.state_codec import state_document
from gpumon.core.ring.runtime_paths import STATE_SCHEMA
from gpumon.core.state import MonitorState
from tests.builders_state import S, device, healthy_gpu, monitor_state, run, starved_gpu


def decoded(state: MonitorState) -> dict[str, Any]:
    body = encode_document(state_document(state, pid=77, address="127.0.0.1:19835"))
    document: dict[str, Any] = json.loads(body)
    return document


class TestTheSchema:
    def test_names_itself_and_its_fields(self) -> None:
        document = decoded(monitor_state())

        assert document["schema"] == STATE_SCHEMA == "gpumon.state/1"
        assert list(document) == [
            "schema", "monotonic_ns", "wall_time_s", "boot_id", "period_ns", "pid", "source",
            "simulated", "replayed", "address", "gpus", "runs", "collectors",
            "rings_left_out",
        ]  # fmt: skip

    def test_names_the_fields_of_a_gpu(self) -> None:
        assert set(decoded(monitor_state())["gpus"][0]) == {
            "index", "uuid", "name", "present", "observed_ns", "busy_ns", "starved_ns",
            "suspected_ns", "pending_ns", "idle_ns", "in_use_ns", "energy_joules",
            "utilization_ratio", "memory_used_bytes", "memory_capacity_bytes", "power_watts",
            "temperature_celsius", "starved_now", "last_sample_ns", "verdict", "error",
            "label", "mig_enabled", "parent_uuid", "listed",
        }  # fmt: skip

    def test_names_the_fields_of_a_run_and_of_a_collector(self) -> None:
        document = decoded(monitor_state())

        assert set(document["runs"][0]) == {
            "run", "job", "rank", "pid", "framework", "alive", "phase", "steps", "samples",
            "epoch", "gpus", "shares", "wall_seconds", "phase_seconds",
        }  # fmt: skip
        assert set(document["collectors"][0]) == {
            "name", "success", "duration_seconds", "errors_total", "message",
        }  # fmt: skip

    def test_names_whose_rings_are_not_read(self) -> None:
        state = monitor_state()._replace(rings_left_out=((65534, 44), (None, 2)))

        assert decoded(monitor_state())["rings_left_out"] == []
        assert decoded(state)["rings_left_out"] == [
            {"uid": 65534, "rings": 44},
            {"uid": None, "rings": 2},
        ]


class TestTheFigures:
    def test_are_counters_in_whole_nanoseconds_whose_sum_closes(self) -> None:
        gpus = decoded(monitor_state())["gpus"]

        assert len(gpus) == 2
        for gpu in gpus:
            told = gpu["busy_ns"] + sum(gpu["idle_ns"].values()) + gpu["pending_ns"]

            assert told == gpu["observed_ns"] == 100 * S

    def test_name_causes_and_phases_by_their_words(self) -> None:
        document = decoded(monitor_state())

        assert document["gpus"][0]["idle_ns"]["input_wait"] == 30 * S
        assert document["gpus"][0]["starved_ns"] == 30 * S
        assert document["gpus"][0]["verdict"] == "starved"
        assert document["runs"][0]["phase"] == "input_wait"
        assert document["runs"][0]["phase_seconds"] == {
            "input_wait": 33.0, "train_step": 45.0, "checkpoint": 8.0,
        }  # fmt: skip

    def test_leave_out_what_a_device_did_not_answer(self) -> None:
        healthy = decoded(monitor_state())["gpus"][1]

        assert healthy["power_watts"] is None
        assert healthy["temperature_celsius"] == 61.0

    def test_keep_the_counters_of_a_gpu_that_is_gone_and_nothing_else(self) -> None:
        gone = starved_gpu(present=False, error="GPU is lost")

        gpu = decoded(monitor_state(gpus=(gone,)))["gpus"][0]

        assert gpu["busy_ns"] == 40 * S
        assert gpu["error"] == "GPU is lost"
        assert gpu["utilization_ratio"] is gpu["energy_joules"] is gpu["power_watts"] is None

    def test_are_null_before_the_first_sample(self) -> None:
        fresh = healthy_gpu(latest=None, last_sample_at_ns=None)

        gpu = decoded(monitor_state(gpus=(fresh,)))["gpus"][0]

        assert gpu["utilization_ratio"] is None
        assert gpu["last_sample_ns"] is None

    def test_tell_mig_instances_from_gpus(self) -> None:
        part = device(2, "MIG-a", parent_uuid="GPU-a", mig_index=1)
        (told,) = decoded(monitor_state(gpus=(healthy_gpu(device=part),)))["gpus"]

        assert (told["index"], told["label"], told["parent_uuid"]) == (2, "2:1", "GPU-a")
        assert told["mig_enabled"] is False

    def test_tell_of_an_ended_run_that_it_is_in_no_phase(self) -> None:
        ended = run(alive=False, phase=None, epoch=None)

        told = decoded(monitor_state(runs=(ended,)))["runs"][0]

        assert (told["alive"], told["phase"], told["epoch"]) == (False, None, None)


class TestHostileContent:
    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    def test_a_value_that_json_cannot_say_is_no_answer(self, number: float) -> None:
        gpu = starved_gpu()
        assert gpu.latest is not None
        odd = gpu._replace(latest=gpu.latest._replace(power_watts=number))

        assert decoded(monitor_state(gpus=(odd,)))["gpus"][0]["power_watts"] is None

    def test_a_name_of_a_megabyte_or_of_broken_bytes_stays_one_short_line_of_ascii(self) -> None:
        hostile = run("x" * 1_000_000, job="a\nb\udcff", framework="\u202eevil")

        body = encode_document(state_document(monitor_state(runs=(hostile,)), pid=1, address=None))

        assert len(body) < 4_000
        assert body.count(b"\n") == 1
        assert body.isascii()
        assert json.loads(body)["runs"][0]["job"] == "a�b�"

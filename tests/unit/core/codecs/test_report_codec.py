"""Tests of the gpumon.report/1 document: exact numbers, and read back from any version."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.clock import seconds
from gpumon.core.codecs.report_codec import (
    decode_report,
    decode_report_with_lanes,
    encode_report,
    encode_report_with_lanes,
)
from gpumon.core.device.job_measurements import InJob, ProcessOnGpu
from gpumon.core.diagnosis.input_advice import reason_seen
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.phase import CAUSES, IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.lanes import Lanes, ReportWithLanes, RunLane
from gpumon.core.report.report import Report
from gpumon.core.waits.reasons import WaitReason
from gpumon.errors import UsageError
from tests.builders.report import (
    gpm_fill,
    gpu,
    report,
    run,
    shared_run,
    wait,
    with_intervals,
)
from tests.builders.time import s

EXAMPLE = report(
    with_intervals(gpu(40, {IdleCause.INPUT_WAIT: 20}, hidden_s=3, pauses=4), (8, 9.5)),
    gpu(0, {IdleCause.NOT_IN_USE: 60}, index=1),
    runs=(
        replace(
            run(workers=1, prefetch=False),
            callback_ns={"TensorBoard": 1_500_000_000},
            step_ns=51_200_000,
            shares={"GPU-0": 0.5, "GPU-1": 0.5},
            ratio_changes=2,
            step_busy_ratios={"GPU-0": 2 / 3, "GPU-1": 1.0},
            alive=True,
            samples=16_000,
        ),
    ),
)

IMBALANCED = report(
    gpu(40, {IdleCause.IMBALANCE: 20}),
    replace(
        gpu(60, index=1),
        name="NVIDIA A10",
        in_job=InJob(
            ("j1",),
            1,
            gpm_fill(0.9),
            s(60),
            (ProcessOnGpu(4711, 1000, s(60)), ProcessOnGpu(77, None, s(60), s(60), s(12))),
        ),
    ),
    runs=(shared_run([2 / 3, 1.0], [0.5, 0.5]),),
)
"""One GPU waits for another, which is another model and shared with another process."""


def document() -> dict[str, Any]:
    encoded: dict[str, Any] = json.loads(json.dumps(encode_report(EXAMPLE)))
    return encoded


def without(document: dict[str, Any], part: str, *fields: str) -> dict[str, Any]:
    """As a version wrote it that did not have these fields."""
    for one in document[part]:
        for field in fields:
            del one[field]
    return document


OLDER: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "shares": (
        "runs", ("shares", "ratio_changes", "step_busy_ratios", "skew_ratio"),
        {"shares": {}, "ratio_changes": 0, "step_busy_ratios": {}},
    ),
    "the GPUs of an advice": ("advice", ("gpus",), {"gpus": ()}),
    "samples": ("runs", ("samples",), {"samples": None}),
    "ranks elsewhere": ("runs", ("world_size",), {"world_size": 1}),
    "the steps of a run": ("runs", ("step_seconds", "alive"), {"step_ns": None, "alive": None}),
}  # fmt: skip
"""Part of a document, fields that an older version did not write, and what is read instead."""


class TestADocument:
    def test_has_skew_and_balanced_ratios_of_a_run_on_several_gpus(self) -> None:
        (one,) = document()["runs"]
        (alone,) = encode_report(report(gpu(40), runs=(run(),)))["runs"]

        assert (alone["skew_ratio"], alone["levelled_ratios"], alone["shares"]) == (None, {}, {})
        assert one["step_seconds"] == 0.0512
        assert one["skew_ratio"] == pytest.approx(1 / 3)
        assert one["levelled_ratios"] == pytest.approx({"GPU-0": 0.6, "GPU-1": 0.4})

    def test_has_the_reason_of_a_wait_in_figures_and_as_a_sentence(self) -> None:
        known = wait(InputWaitReason.CPU_BOUND, tasks=4, wanted=4.0, given=2.0, usable=2)
        reasons = (known, WaitReason(IdleCause.INPUT_WAIT, InputWaitReason.UNKNOWN, s(1)))

        (one,) = encode_report(report(gpu(40), runs=(replace(run(), reasons=reasons),)))["runs"]

        figured, unknown = one["reasons"]
        assert (figured["reason"], figured["waited_seconds"]) == ("cpu_bound", 20.0)
        assert figured["figures"]["wanted_cores"] == 4.0
        assert figured["seen"] == reason_seen(known)
        assert (unknown["reason"], unknown["figures"], unknown["seen"]) == ("unknown", None, "")

    def test_has_who_waits_for_whom_and_why(self) -> None:
        (one,) = encode_report(IMBALANCED)["imbalance"]

        assert (one["job"], one["runs"], one["missing_ranks"]) == ("j1", ["train"], 0)
        assert one["waiting"] == [{"gpu": "GPU-0", "seconds": 20.0}]
        assert one["unseen"] == []
        (slow,) = one["slow"]
        assert (slow["gpu"], slow["held_against"]) == ("GPU-1", "GPU-0")
        assert slow["times"] == pytest.approx(1.5)
        assert slow["causes"] == [
            {"reason": "other_tenant", "times": 1.25, "pids": [77], "uids": [None],
             "computing_ratio": 0.2, "present_ratio": 1.0},
            {"reason": "slower_board", "times": pytest.approx(1.2), "name": "NVIDIA A10",
             "peer_name": "NVIDIA A40"},
        ]  # fmt: skip

    def test_has_numbers_even_without_idle_or_observed_time(self) -> None:
        used, unused = document()["gpus"]

        assert list(used["idle_by_cause"]) == [cause.value for cause in CAUSES]
        assert used["idle_by_cause"]["checkpoint"] == 0.0
        assert (unused["starved_ratio"], unused["coverage_ratio"]) == (0.0, 1.0)
        assert unused["gaps"]["p50_seconds"] == 0.0

    @given(
        st.integers(0, 10**17),
        st.dictionaries(st.sampled_from(CAUSES), st.integers(1, 10**16), max_size=12),
    )
    def test_is_not_rounded_and_its_sums_close(
        self, busy_ns: int, idle_ns: dict[IdleCause, int]
    ) -> None:
        one = gpu(1)
        observed_ns = busy_ns + sum(idle_ns.values())
        totals = one.totals._replace(observed_ns=observed_ns, busy_ns=busy_ns, idle_ns=idle_ns)

        encoded = encode_report(report(replace(one, totals=totals)))["gpus"][0]

        by_cause = sum(encoded["idle_by_cause"].values())
        assert encoded["busy_seconds"] == seconds(busy_ns)
        assert encoded["idle_seconds"] == pytest.approx(by_cause, abs=1e-6)
        assert encoded["busy_seconds"] + by_cause == pytest.approx(
            encoded["observed_seconds"], abs=1e-6
        )


class TestDecoding:
    @pytest.mark.parametrize("one", [EXAMPLE, IMBALANCED])
    def test_gives_a_report_with_the_same_document(self, one: Report) -> None:
        encoded = json.loads(json.dumps(encode_report(one)))

        assert encode_report(decode_report(encoded)) == encoded

    def test_gives_the_same_report_on_a_clock_that_starts_at_0(self) -> None:
        back = decode_report(document())

        assert back.origin_ns == 0
        assert back.advice == EXAMPLE.advice
        assert [advice.gpus for advice in back.advice] == [("0",), ("1",)]
        assert back.runs == EXAMPLE.runs
        assert [one.verdict for one in back.gpus] == [one.verdict for one in EXAMPLE.gpus]

    @pytest.mark.parametrize("what", OLDER)
    def test_uses_defaults_for_fields_of_an_older_version(self, what: str) -> None:
        part, fields, read = OLDER[what]

        for one in getattr(decode_report(without(document(), part, *fields)), part):
            assert {name: getattr(one, name) for name in read} == read

    def test_uses_the_gaps_of_an_older_version_as_pauses(self) -> None:
        older = without(document(), "gpus", "pauses", "input_probability", "likely_causes")

        assert encode_report(decode_report(older)) == document()

    @pytest.mark.parametrize("other", [None, [], 7, "text", {}, {"schema": "gpumon.report/2"}])
    def test_refuses_other_schemas(self, other: object) -> None:
        with pytest.raises(UsageError, match=r"gpumon\.report/1"):
            decode_report(other)

    def test_names_a_missing_field(self) -> None:
        damaged = document()
        del damaged["source"]

        with pytest.raises(UsageError, match="'source' is missing"):
            decode_report(damaged)

    @pytest.mark.parametrize(
        ("field", "value"),
        [("busy_seconds", "much"), ("busy_seconds", float("inf")), ("verdict", "splendid"),
         ("idle_by_cause", {"lunch": 1.0}), ("gaps", None), ("coverage_ratio", float("nan"))],
    )  # fmt: skip
    def test_refuses_an_invalid_value(self, field: str, value: object) -> None:
        damaged = document()
        damaged["gpus"][0][field] = value

        with pytest.raises(UsageError, match="valid"):
            decode_report(damaged)

    @pytest.mark.parametrize(("in_use_s", "first_wait_s"), [(0, 0), (20, 20), (20, 30)])
    def test_refuses_a_verdict_without_time_in_use(self, in_use_s: int, first_wait_s: int) -> None:
        damaged = document()
        damaged["gpus"][0] |= {
            "verdict": "starved",
            "in_use_seconds": in_use_s,
            "first_input_wait_seconds": first_wait_s,
        }

        with pytest.raises(UsageError, match="valid"):
            decode_report(damaged)

    def test_refuses_an_advice_on_an_unknown_cause(self) -> None:
        damaged = document()
        damaged["advice"][0]["cause"] = "lunch"

        with pytest.raises(UsageError, match="valid"):
            decode_report(damaged)

    def test_makes_the_text_of_an_advice_safe_to_print(self) -> None:
        written = document()
        written["advice"][0]["text"] = "prefetch\x1b[31m more\ud800"

        assert decode_report(written).advice[0].text == "prefetch\ufffd[31m more\ufffd"


LANES = Lanes(
    (Lane(s(7), s(9), s(1), (s(1), s(1)), (s(1), 0), (s(1), 0)), Lane(s(7), s(7))),
    (
        RunLane(
            run="train",
            pid=4711,
            start_ns=s(7),
            end_ns=s(8.5),
            cell_ns=s(1),
            phase_ns={TrainingPhase.INPUT_WAIT: (s(1), s(0.5))},
            reason_ns={InputWaitReason.GIL_BOUND: (s(0.5), 0)},
        ),
    ),
)


class TestLanes:
    def document(self) -> dict[str, Any]:
        encoded = encode_report_with_lanes(ReportWithLanes(EXAMPLE, LANES))
        read: dict[str, Any] = json.loads(json.dumps(encoded))
        return read

    def test_are_read_back_relative_to_the_start(self) -> None:
        back, lanes = decode_report_with_lanes(self.document())

        assert back == decode_report(document())
        assert lanes is not None
        assert lanes.gpus == (replace(LANES.gpus[0], start_ns=0, end_ns=s(2)), Lane())
        assert lanes.runs == (replace(LANES.runs[0], start_ns=0, end_ns=s(1.5)),)

    @pytest.mark.parametrize(
        ("lane", "changes"),
        [
            ("gpus", {"cell_ns": 0}),
            ("gpus", {"busy_ns": [1]}),
            ("gpus", {"end_ns": s(3)}),
            ("runs", {"phase_ns": {"train_step": [1, 2, 3]}}),
            ("runs", {"reason_ns": {"the weather": [1, 2]}}),
        ],
    )
    def test_are_refused_if_they_are_inconsistent(self, lane: str, changes: dict[str, Any]) -> None:
        odd = self.document()
        odd["lanes"][lane][0].update(changes)

        with pytest.raises(UsageError, match=r"not a valid gpumon\.report/1"):
            decode_report_with_lanes(odd)

    def test_are_refused_for_another_number_of_gpus(self) -> None:
        odd = self.document()
        del odd["lanes"]["gpus"][1]

        with pytest.raises(UsageError, match="GPUs without a lane"):
            decode_report_with_lanes(odd)

"""Tests of the report document on the present, bounds of causes, silent runs and late ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.accounting.rank_wait import SUSPENDED, RankWait
from gpumon.core.accounting.totals import NowVerdict
from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import CAUSES, IdleCause, TrainingPhase
from gpumon.core.report.report import Report
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.verdict import VerdictName
from gpumon.errors import UsageError
from tests.builders.report import gpu, report, run, with_totals
from tests.builders.time import s

WAIT, STEP = IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP
BOUNDS: dict[str, Any] = {"may_be_less_ns": {WAIT: s(12)}, "may_be_more_ns": {STEP: s(12)}}
WINDOW = gpu(30, {WAIT: 10}).totals._replace(
    epoch_input_wait_ns=s(2),
    hanging_ns=s(3),
    hanging_idle_ns={WAIT: s(3)},
    rank_wait_low_ns=s(1),
    rank_wait_high_ns=s(4),
)
NOW = NowVerdict(VerdictName.STARVED, s(37), WINDOW, diagnose(WINDOW), before=VerdictName.HEALTHY)
FULL = replace(
    with_totals(
        gpu(40, {WAIT: 20}),
        **BOUNDS,
        epoch_input_wait_ns=s(4),
        hanging_ns=s(5),
        hanging_idle_ns={WAIT: s(5)},
        rank_wait_low_ns=s(6),
        rank_wait_high_ns=s(9),
    ),
    waits_for=RankWait("train-r1", 1, SUSPENDED),
    now=NOW,
)
SILENCE = RunSilence(s(17), TrainingPhase.INPUT_WAIT, s(50), False, s(47), "futex_wait_queue")
EXAMPLE = replace(
    report(FULL, runs=(replace(run(), silence=SILENCE, suspended_since_ns=s(27)),)), is_part=True
)


def document(of: Report = EXAMPLE) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(json.dumps(encode_report(of)))
    return written


def read_back(of: Report) -> Report:
    return decode_report(document(of))


class TestADocument:
    def test_has_both_bounds_of_every_cause(self) -> None:
        encoded = document()["gpus"][0]
        bounds, best = encoded["idle_bounds_by_cause"], encoded["idle_by_cause"]

        assert [*bounds] == [cause.value for cause in CAUSES]
        assert (bounds["input_wait"], bounds["within_step"]) == ([8, 20], [0, 12])
        assert all(low <= best[name] <= high for name, (low, high) in bounds.items())

    def test_does_not_count_a_hang_as_starved(self) -> None:
        encoded = document()["gpus"][0]

        assert (encoded["starved_seconds"], encoded["hanging_seconds"]) == (20 - 12 - 5, 5)
        assert encoded["hanging_by_cause"]["input_wait"] == 5


class TestDecoding:
    def test_gives_a_report_with_the_same_document(self) -> None:
        assert document(read_back(EXAMPLE)) == document()

    def test_gives_the_same_totals_waits_and_silence(self) -> None:
        (one,) = read_back(EXAMPLE).gpus
        (silent,) = read_back(EXAMPLE).runs
        kept = ("may_be_less_ns", "may_be_more_ns", "epoch_input_wait_ns", "hanging_ns",
                "rank_wait_low_ns", "rank_wait_high_ns", "starved_ns")  # fmt: skip

        assert {name: getattr(one.totals, name) for name in kept} == {
            name: getattr(FULL.totals, name) for name in kept
        }
        assert (one.waits_for, one.verdict) == (FULL.waits_for, FULL.verdict)
        assert silent.silence == SILENCE._replace(since_ns=s(10), hanging_from_ns=s(40))
        assert silent.suspended_since_ns == s(20)

    @pytest.mark.parametrize(
        "now",
        [
            NOW._replace(before=None),
            NOW._replace(name=VerdictName.NOT_IN_USE, ended_ns=s(37)),
            NOW._replace(name=VerdictName.NOT_IN_USE, is_suspended=True),
            NOW._replace(name=VerdictName.HEALTHY, before=VerdictName.PARTIAL),
        ],
        ids=["no verdict before", "ended", "suspended", "recovered"],
    )
    def test_gives_the_same_present_verdict(self, now: NowVerdict) -> None:
        back = read_back(report(replace(FULL, now=now))).gpus[0].now

        assert back is not None
        for field in ("name", "before", "is_suspended", "verdict", "has_recovered", "window_ns"):
            assert getattr(back, field) == getattr(now, field)
        assert back.since_ns == s(30)
        assert back.ended_ns == (None if now.ended_ns is None else s(30))
        assert back.totals.starved_ns == now.totals.starved_ns

    def test_gives_no_present_without_a_wall_clock(self) -> None:
        assert read_back(replace(EXAMPLE, started_at=None)).gpus[0].now is None


class TestAnOlderDocument:
    @pytest.fixture
    def older(self) -> dict[str, Any]:
        written = document(report(gpu(40, {WAIT: 20}), runs=(run(),)))
        del written["part"]
        for field in ("idle_bounds_by_cause", "waits_for", "now", "hanging_seconds",
                      "hanging_by_cause", "hanging_now", "epoch_input_wait_seconds"):  # fmt: skip
            del written["gpus"][0][field]
        for field in ("suspended_since", "silence"):
            del written["runs"][0][field]
        return written

    def test_is_read_as_before(self, older: dict[str, Any]) -> None:
        back, as_written = decode_report(older), report(gpu(40, {WAIT: 20}), runs=(run(),))

        assert back.gpus == as_written.gpus
        assert back.runs == as_written.runs
        assert not back.is_part

    def test_has_no_verdict_before_the_present_one(self) -> None:
        written = document()
        del written["gpus"][0]["now"]["verdict_before"]
        del written["gpus"][0]["now"]["idle_bounds_by_cause"]

        now = decode_report(written).gpus[0].now

        assert now is not None
        assert (now.name, now.before) == (VerdictName.STARVED, None)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("idle_bounds_by_cause", {"input_wait": [25, 30]}),
        ("waits_for", {"low_seconds": 9, "high_seconds": 6}),
        ("waits_for", {"low_seconds": -1}),
        ("now", {"verdict": "splendid"}),
        ("now", {"since": "lunch"}),
    ],
)
def test_a_damaged_document_is_refused(part: str, changes: dict[str, Any]) -> None:
    damaged = document()
    damaged["gpus"][0][part] |= changes

    with pytest.raises(UsageError, match="valid"):
        decode_report(damaged)

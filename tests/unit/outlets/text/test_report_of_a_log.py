"""Specification of what the text says of a log: its GPUs together, and what it cannot show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.log.common_pauses import Together
from gpumon.core.log.held_memory import HeldMemory
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report, sampling_of
from gpumon.core.time.totals import GapTotals, GpuTotals
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.outlets.text.report_text import render_report
from tests.builders_report import gpu, report
from tests.builders_time import s
from tests.unit.outlets.report_lines import PLAIN

UNKNOWN, NOT_IN_USE = IdleCause.UNKNOWN, IdleCause.NOT_IN_USE
HEALTHY = gpu(7_200)


def of_log(one: Report, *, period_s: float = 1.0) -> Report:
    return replace(one, period_ns=s(period_s), sampling=sampling_of(s(period_s)))


def words(one: Report) -> str:
    return " ".join(render_report(one, PLAIN).split())


def with_pauses(count: int, *, p50_s: float, longest_s: float) -> GpuTotals:
    """The time of a GPU that paused so often."""
    busy = gpu(30, {UNKNOWN: 4}, suspected_s=4)
    gaps = GapTotals(count=count, total_ns=s(4), p50_ns=s(p50_s), longest_ns=s(longest_s))
    return busy.totals._replace(gaps=gaps, pauses=gaps)


def joined(gpus: int, all_paused_s: float = 0.0, by_chance_s: float = 0.0) -> Together:
    """GPUs in use for an hour, each of which pauses for 20 min of it."""
    return Together(
        in_use_ns=s(3_600), all_paused_ns=s(all_paused_s), all_pauses=30,
        in_use_gpu_ns=gpus * s(3_600), paused_gpu_ns=gpus * s(1_200), by_chance_ns=s(by_chance_s),
        in_use=tuple(range(gpus)), idle_beside_peer_ns=(0,) * gpus,
    )  # fmt: skip


class TestTheWholeMachine:
    def test_is_told_in_gpu_time(self) -> None:
        gpus = [gpu(3_600, {UNKNOWN: 4_680, NOT_IN_USE: 3_420}, index=at) for at in range(4)]

        assert "4 GPUs, 13 GPU-hours observed: 31 % busy, 40 % lost in use, 29 % not in use." in (
            words(report(*gpus))
        )

    def test_is_not_told_of_one_gpu(self) -> None:
        assert "GPU-hours" not in words(report(HEALTHY))


class TestGpusThatPauseTogether:
    def test_are_told_to_look_at_what_they_share(self) -> None:
        one = replace(report(*(gpu(60, index=at) for at in range(4))), together=joined(4, 720))

        said = words(one)

        assert (
            "All 4 GPUs pause together for 12 min (20 % of the time they are in use): what they "
            "share holds them up. Look at the loader, the storage, checkpoints and barriers, not "
            "at one GPU." in said
        )

    def test_are_named_where_they_are_not_all(self) -> None:
        gpus = (gpu(60, index=at) for at in range(4))

        said = words(replace(report(*gpus), together=joined(2, 720)))

        assert "GPU 0 and GPU 1 pause together" in said

    def test_are_both_where_they_are_two(self) -> None:
        said = words(replace(report(gpu(60), gpu(60, index=1)), together=joined(2, 720)))

        assert "Both GPUs pause together" in said

    def test_are_not_told_of_what_is_chance(self) -> None:
        said = words(replace(report(gpu(60), gpu(60, index=1)), together=joined(2, 410, 400)))

        assert "together" not in said


class TestAGpuBesideAnother:
    def test_that_pauses_is_told_beside_the_other(self) -> None:
        slow = replace(gpu(4_800, {UNKNOWN: 2_400}, index=1), idle_beside_peer_ns=s(2_400))

        assert "GPU 1 idles for 40 min while GPU 0 works." in words(report(HEALTHY, slow))

    def test_that_is_never_used_is_what_to_do_next_where_nothing_else_is(self) -> None:
        unused = replace(gpu(0, {NOT_IN_USE: 7_200}, index=1), idle_beside_peer_ns=s(7_200))
        one = replace(report(HEALTHY, unused), advice=())

        assert next_line(one) == (
            "GPU 1 was never in use while GPU 0 worked for 2 h. Give it a share of the work, or "
            "leave it to another job."
        )

    def test_that_is_never_used_gets_one_advice_and_not_two(self) -> None:
        starved = gpu(3_600, {UNKNOWN: 3_600}, suspected_s=3_600, pauses=90)
        unused = replace(gpu(0, {NOT_IN_USE: 7_200}, index=1), idle_beside_peer_ns=s(3_600))

        said = words(report(starved, unused))

        assert "Besides: - GPU 1 was never in use while GPU 0 worked for 60 min." in said
        assert "Give it a share" not in said
        assert said.count("give it back") == 1

    def test_is_one_sentence_where_they_are_a_thousand(self) -> None:
        unused = [
            replace(gpu(0, {NOT_IN_USE: 7_200}, index=at), idle_beside_peer_ns=s(7_200))
            for at in range(1, 1_000)
        ]

        said = words(report(HEALTHY, *unused))

        assert said.count("were never in use while others worked for up to 2 h.") == 1
        assert "GPU 1, GPU 2, GPU 3, GPU 4 and 995 more" in said


class TestMemoryHeld:
    def test_is_told_with_how_much_how_long_and_the_longest_stretch(self) -> None:
        held = replace(HEALTHY, held_memory=HeldMemory(s(7_560), s(5_400), 73 << 30))

        assert (
            "GPU 0 held 73.0 GiB for 2.1 h in which nothing ran, at most 90 min at a stretch: that "
            "time could have gone to another job." in words(report(held))
        )

    def test_is_not_told_of_minutes(self) -> None:
        held = replace(HEALTHY, held_memory=HeldMemory(s(120), s(120), 73 << 30))

        assert "held" not in words(report(held))


class TestSamplingThatIsTooCoarse:
    def test_leaves_healthy_no_more_than_it_is(self) -> None:
        one = of_log(report(HEALTHY), period_s=60)

        assert verdict_line(one) == (
            "healthy, as far as one sample every 60 s can tell: GPU 0 works well."
        )
        assert why_line(one).endswith(
            "One sample every 60 s: pauses below 2 min cannot be seen, and each sample speaks for "
            "at most the second before it."
        )
        assert next_line(one) == "Log once a second (nvidia-smi: `-l 1`) to see shorter pauses."

    def test_is_told_with_a_loss_too_and_once(self) -> None:
        one = of_log(report(gpu(30, {UNKNOWN: 30}, suspected_s=30, pauses=20)), period_s=5)

        said = words(one)

        assert said.count("pauses below 10 s cannot be seen") == 1
        assert "Besides: - Log once a second (nvidia-smi: `-l 1`) to see shorter pauses." in said

    @pytest.mark.parametrize("period_s", [0.1, 1, 4.9])
    def test_is_not_told_of_samples_that_are_close(self, period_s: float) -> None:
        assert "cannot be seen" not in words(of_log(report(HEALTHY), period_s=period_s))


class TestLevelsAndPauses:
    def test_are_told_of_a_log(self) -> None:
        one = gpu(30, {UNKNOWN: 30}, suspected_s=30, pauses=20)

        assert (
            "levels: 50 % of the time in use below 10 %, 0 % between, 50 % above 90 %; 20 pauses, "
            "half of them up to 1.5 s, the longest 3.0 s." in words(of_log(report(one)))
        )

    def test_tell_one_pause_by_its_length(self) -> None:
        one = replace(gpu(30, {UNKNOWN: 4}), totals=with_pauses(1, p50_s=4, longest_s=4))

        assert "above 90 %; 1 pause of 4.0 s." in words(of_log(report(one)))

    @pytest.mark.parametrize(
        ("p50_s", "longest_s", "said"),
        [(5, 9, "20 pauses too short to measure."),
         (5, 10, "20 pauses, half of them too short to measure, the longest 10.0 s."),
         (12, 40, "20 pauses, half of them up to 12.0 s, the longest 40.0 s.")],
    )  # fmt: skip
    def test_name_no_length_that_is_said_to_be_invisible(
        self, p50_s: float, longest_s: float, said: str
    ) -> None:
        totals = with_pauses(20, p50_s=p50_s, longest_s=longest_s)
        starved = gpu(30, {UNKNOWN: 4}, suspected_s=4, pauses=20)
        one = of_log(report(replace(starved, totals=totals)), period_s=5)

        assert "pauses below 10 s cannot be seen" in words(one)
        assert ("the longest" in why_line(one)) is (longest_s >= 10)
        assert f"above 90 %; {said}" in words(one)

    def test_are_not_told_of_a_gpu_that_was_not_used(self) -> None:
        assert "levels" not in words(of_log(report(gpu(0, {NOT_IN_USE: 60}))))

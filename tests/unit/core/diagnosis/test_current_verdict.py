"""Specification of the current verdict, tick by tick: when it begins, ends, and since when.

How a monitor comes to it is in ``tests/unit/pipeline/test_verdict_on_now.py``.
"""

from __future__ import annotations

import pytest

from gpumon.core.accounting.pending import NOTHING_UNSETTLED
from gpumon.core.accounting.totals import GpuTotals, NowVerdict
from gpumon.core.diagnosis.current_verdict import CurrentVerdict, GpuMoment
from gpumon.core.phase import IdleCause
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import VerdictName
from tests.builders.time import s

STARVED, HEALTHY, UNUSED = VerdictName.STARVED, VerdictName.HEALTHY, VerdictName.NOT_IN_USE
HANGING, TOO_SHORT = VerdictName.HANGING, VerdictName.TOO_SHORT_TO_JUDGE


class Gpu:
    """A GPU whose time passes in ticks of ten seconds."""

    def __init__(self) -> None:
        self.diagnosed = CurrentVerdict(DEFAULT_SETTINGS)
        self.at_s = self.last_active_s = self.jobs = 0
        self.totals = GpuTotals()
        self.verdicts: list[NowVerdict] = []

    @property
    def now(self) -> NowVerdict:
        return self.verdicts[-1]

    def idles(self, seconds: int) -> None:
        """It belongs to no job."""
        for _ in range(seconds // 10):
            self._pass(0.0, IdleCause.NOT_IN_USE, in_job=False)

    def works(
        self,
        seconds: int,
        starved_ratio: float = 0.0,
        *,
        suspended_since_s: int | None = None,
        hanging_since_s: int | None = None,
    ) -> None:
        """It is in use, and waits for input for that part of its time."""
        self.jobs = self.jobs or 1
        cause = IdleCause.INPUT_WAIT if suspended_since_s is None else IdleCause.NOT_IN_USE
        for _ in range(seconds // 10):
            self._pass(
                1 - starved_ratio, cause,
                in_job=True, suspended_since_s=suspended_since_s, hanging_since_s=hanging_since_s,
            )  # fmt: skip

    def _pass(
        self,
        busy_ratio: float,
        cause: IdleCause,
        *,
        in_job: bool,
        suspended_since_s: int | None = None,
        hanging_since_s: int | None = None,
    ) -> None:
        self.at_s += 10
        busy_ns, before = s(10 * busy_ratio), self.totals
        idle_ns = {**before.idle_ns, cause: before.idle_ns.get(cause, 0) + s(10) - busy_ns}
        is_use = cause is not IdleCause.NOT_IN_USE
        self.totals = before._replace(
            observed_ns=before.observed_ns + s(10),
            busy_ns=before.busy_ns + busy_ns,
            idle_ns=idle_ns,
            in_use_ns=before.in_use_ns + (s(10) if is_use else busy_ns),
            in_use_busy_ns=before.in_use_busy_ns + busy_ns,
            high_ns=before.high_ns + busy_ns,
        )
        if busy_ns:
            self.last_active_s = self.at_s
        moment = GpuMoment(
            s(self.at_s),
            self.totals,
            NOTHING_UNSETTLED,
            last_active_ns=s(self.last_active_s),
            jobs=self.jobs,
            in_job=in_job,
            suspended_since_ns=None if suspended_since_s is None else s(suspended_since_s),
            hanging_since_ns=None if hanging_since_s is None else s(hanging_since_s),
        )
        self.verdicts.append(self.diagnosed.update(moment))


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


class TestALossVerdict:
    @pytest.mark.parametrize(("ratio", "name"), [(0.049, HEALTHY), (0.05, STARVED)])
    def test_begins_at_five_percent(self, gpu: Gpu, ratio: float, name: VerdictName) -> None:
        gpu.works(600, ratio)

        assert gpu.now.name is name

    @pytest.mark.parametrize(("ratio", "name"), [(0.031, STARVED), (0.028, HEALTHY)])
    def test_ends_below_three_percent(self, gpu: Gpu, ratio: float, name: VerdictName) -> None:
        gpu.works(600, 0.1)
        gpu.works(700, ratio)

        assert gpu.now.name is name

    def test_does_not_flicker_between_the_two(self, gpu: Gpu) -> None:
        gpu.works(600, 0.06)
        for _ in range(20):
            gpu.works(60, 0.03)
            gpu.works(60, 0.05)

        assert {one.name for one in gpu.verdicts[60:]} == {STARVED}
        assert {one.since_ns for one in gpu.verdicts[60:]} == {gpu.verdicts[60].since_ns}

    def test_is_of_the_last_ten_minutes_in_use(self, gpu: Gpu) -> None:
        gpu.works(6_000, 0.9)
        gpu.works(700)

        assert (gpu.now.name, gpu.now.before, gpu.now.has_recovered) == (HEALTHY, STARVED, True)
        assert s(600) <= gpu.now.window_ns <= s(620)


class TestSince:
    def test_is_when_the_job_began_for_a_first_verdict(self, gpu: Gpu) -> None:
        gpu.works(300, 0.5)

        assert (gpu.now.name, gpu.now.since_ns) == (STARVED, 0)

    def test_is_when_a_later_verdict_began(self, gpu: Gpu) -> None:
        gpu.works(600)
        gpu.works(600, 0.5)

        assert s(600) < gpu.now.since_ns <= s(700)


class TestAJob:
    def test_is_diagnosed_in_full_once_it_ended(self, gpu: Gpu) -> None:
        gpu.works(1_000, 0.5)
        gpu.works(1_000)
        gpu.idles(300)

        assert (gpu.now.name, gpu.now.verdict.name) == (UNUSED, STARVED)
        assert gpu.now.since_ns == gpu.now.ended_ns == s(2_000)
        assert gpu.now.totals.in_use_ns == s(2_000)

    def test_starts_without_the_history_of_the_last_one(self, gpu: Gpu) -> None:
        gpu.works(1_000, 0.9)
        gpu.idles(300)
        gpu.jobs = 2
        gpu.works(200)

        assert (gpu.now.name, gpu.now.has_recovered) == (HEALTHY, False)
        assert gpu.now.window_ns <= s(200)

    def test_is_too_short_to_judge_at_first(self, gpu: Gpu) -> None:
        gpu.works(10, 0.5)
        gpu.totals = gpu.totals._replace(in_use_ns=s(9), in_use_busy_ns=s(4))
        fresh = CurrentVerdict(DEFAULT_SETTINGS)
        first = GpuMoment(
            s(10), gpu.totals, NOTHING_UNSETTLED, last_active_ns=s(10), jobs=1, in_job=True
        )

        assert fresh.update(first).name is TOO_SHORT


class TestAStandstill:
    def test_is_not_in_use_if_the_process_is_suspended(self, gpu: Gpu) -> None:
        gpu.works(600, 0.5)
        gpu.works(300, 1.0, suspended_since_s=600)

        assert (gpu.now.name, gpu.now.since_ns) == (UNUSED, s(600))
        assert (gpu.now.is_suspended, gpu.now.verdict.name) == (True, STARVED)

    def test_began_at_the_last_step_if_the_run_hangs(self, gpu: Gpu) -> None:
        gpu.works(600)
        gpu.works(100, 1.0, hanging_since_s=570)

        assert (gpu.now.name, gpu.now.since_ns, gpu.now.before) == (HANGING, s(570), HEALTHY)

    def test_is_not_followed_by_a_recovery(self, gpu: Gpu) -> None:
        gpu.works(600)
        gpu.works(100, 1.0, suspended_since_s=600)
        gpu.works(100)

        assert (gpu.now.name, gpu.now.is_suspended) == (HEALTHY, False)
        assert not gpu.now.has_recovered


class TestSinceAfterSomethingElse:
    def test_is_the_jobs_beginning_after_an_idle_hour(self, gpu: Gpu) -> None:
        gpu.idles(3600)
        gpu.works(100, 0.5)

        assert (gpu.now.name, gpu.now.since_ns) == (STARVED, s(3600))

    def test_is_when_it_went_on_after_a_suspension(self, gpu: Gpu) -> None:
        gpu.works(300, 0.5)
        gpu.works(600, 1.0, suspended_since_s=300)
        gpu.works(20, 0.5)

        assert (gpu.now.name, gpu.now.since_ns) == (STARVED, s(910))

"""Specification of lost time by reason: sums close, and a sample covers at most a second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.waits.evidence import HostEvidence
from gpumon.core.waits.reasons import RunReasons
from gpumon.core.waits.wait_rules import LoaderPlace, ShortOf
from tests.builders.report import MB, evidence, gil_threads, task
from tests.builders.time import s

INPUT, STEP = IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP
CPU, DISK, GIL, UNKNOWN = (
    InputWaitReason.CPU_BOUND, InputWaitReason.DISK_BOUND, InputWaitReason.GIL_BOUND,
    InputWaitReason.UNKNOWN,
)  # fmt: skip
CROWDED = (task(1.0, 0.5),) * 4


class TestSplitting:
    def test_attributes_each_second_to_its_own_sample(self) -> None:
        reasons = RunReasons()
        reasons.observe(evidence(workers=CROWDED, at_s=1))
        reasons.observe(evidence(read_bytes_per_second=50 * MB, disk_busy_ratio=0.9, at_s=2))

        assert reasons.split(INPUT, s(0.5), s(2), s(1.2)) == {CPU: s(0.4), DISK: s(0.8)}

    def test_attributes_at_most_a_second_to_a_sample(self) -> None:
        reasons = RunReasons()
        reasons.observe(replace(evidence(workers=CROWDED, at_s=5), start_ns=s(2)))

        assert reasons.split(INPUT, s(2), s(5), s(3)) == {CPU: s(1), UNKNOWN: s(2)}

    def test_attributes_no_second_to_two_samples(self) -> None:
        reasons = RunReasons()
        reasons.observe(evidence(workers=CROWDED, at_s=1))
        reasons.observe(evidence(workers=CROWDED, at_s=1.5))

        assert reasons.split(INPUT, s(0), s(2), s(2)) == {CPU: s(1.5), UNKNOWN: s(0.5)}

    def test_attributes_steps_only_to_the_gil(self) -> None:
        reasons = RunReasons()
        reasons.observe(evidence(workers=CROWDED, at_s=1))
        reasons.observe(evidence(threads=gil_threads(2), at_s=2))

        assert reasons.split(STEP, s(0), s(2), s(0.4)) == {UNKNOWN: s(0.2), GIL: s(0.2)}

    @given(
        st.lists(st.integers(1, s(3)), max_size=8),
        st.integers(0, s(10)),
        st.integers(1, s(5)),
        st.floats(0, 1),
    )
    def test_loses_no_nanosecond(
        self, gaps_ns: list[int], start_ns: int, length_ns: int, lost: float
    ) -> None:
        reasons, at_ns = RunReasons(), 0
        for gap_ns in gaps_ns:
            at_ns += gap_ns
            reasons.observe(evidence(workers=CROWDED, at_s=at_ns / s(1)))
        lost_ns = round(lost * length_ns)

        split = reasons.split(INPUT, start_ns, start_ns + length_ns, lost_ns)

        assert sum(split.values()) == lost_ns
        assert all(amount_ns >= 0 for amount_ns in split.values())
        reported_ns = sum(one.waited_ns for one in reasons.report())
        assert reported_ns == (lost_ns if split.keys() - {UNKNOWN} else 0)


class TestTheReport:
    def reasons_after(self, *samples_and_losses: tuple[HostEvidence, float]) -> RunReasons:
        reasons = RunReasons()
        for at, (sample, lost) in enumerate(samples_and_losses):
            reasons.observe(sample)
            reasons.split(INPUT, s(at), s(at + 1), s(lost))
        return reasons

    def test_has_the_most_expensive_reason_first_with_its_confidence(self) -> None:
        disk: dict[str, Any] = {"read_bytes_per_second": 50 * MB, "disk_busy_ratio": 0.9}
        reasons = self.reasons_after(
            (evidence(workers=CROWDED, at_s=1), 0.3),
            (evidence(workers=(task(0.2),), **disk, at_s=2), 0.9),
            (evidence(workers=(task(0.2),), **disk, at_s=3), 0.3),
        )

        disk_bound, cpu_bound = reasons.report()

        assert (disk_bound.reason, disk_bound.waited_ns) == (DISK, s(1.2))
        assert disk_bound.confidence == pytest.approx(0.8)
        assert cpu_bound.reason is CPU
        assert cpu_bound.confidence == pytest.approx(0.2)

    @pytest.mark.parametrize(("queued", "needs"), [(0.09, ShortOf.WORKERS), (0.77, ShortOf.CORES)])
    def test_has_whether_workers_or_cores_are_short(self, queued: float, needs: ShortOf) -> None:
        (reason,) = self.reasons_after(
            (evidence(workers=(task(1.0, queued),) * 4, at_s=1), 1.0)
        ).report()

        assert (reason.place, reason.short_of) == (LoaderPlace.WORKERS, needs)

    def test_forgets_where_a_loader_slept_before_it_stopped_waiting(self) -> None:
        asleep = evidence(workers=(task(0.2, state="D"),), at_s=1)
        reasons = RunReasons()
        reasons.observe(asleep)
        reasons.observe(evidence(workers=(task(0.2),), at_s=60))

        assert reasons.split(INPUT, s(59), s(60), s(1)) == {UNKNOWN: s(1)}

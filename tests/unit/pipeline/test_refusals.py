"""Messages on a ring or a file that could not be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpumon.core.ring_format.events import RingsReading
from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.core.state import MonitorState
from gpumon.pipeline.reports import report_of
from tests.builders.monitor import NO_RINGS, monitor, reading
from tests.builders.time import s

MISSING = "/data/busy.jsonl is not there"
REFUSED = RingsReading(rejected=1, message="1-1.ring: not a phase ring")
LEFT_OUT = RingsReading(message="2 phase rings are not read", left_out=((1000, 2),))

Second = Callable[..., MonitorState]


@pytest.fixture
def second() -> Second:
    """The next second of a daemon that follows a file."""
    watching, seconds = monitor("follow:/data/busy.jsonl", simulated=True), iter(range(1, 100))

    def pass_second(
        *frames: Frame, rings: RingsReading = NO_RINGS, error: str | None = None
    ) -> MonitorState:
        return watching.ingest(reading(s(next(seconds)), *frames, rings=rings, error=error))

    return pass_second


def frame(*, trouble: str | None = None, rejected: int = 0) -> Frame:
    gpus = (GpuSample(device=Device(uuid="GPU-followed-0", index=0)),)
    return Frame(taken_at_ns=0, gpus=gpus, trouble=trouble, rejected=rejected)


class TestAFollowedFile:
    def test_that_is_missing_makes_its_collector_fail_and_is_noted_until_it_is_there(
        self, second: Second
    ) -> None:
        without, silent, there = second(frame(trouble=MISSING)), second(), second(frame())

        source = without.collectors[0]
        assert (source.success, source.message, source.errors_total) == (False, MISSING, 0)
        assert report_of(without).notes == (f"follow: {MISSING}",)
        assert not silent.collectors[0].success
        assert there.collectors[0].success
        assert report_of(there).notes == ()

    def test_with_a_bad_line_is_noted_for_good(self, second: Second) -> None:
        second(frame(trouble="line 7: no", rejected=1))
        second(frame(trouble="line 9: no", rejected=2))
        later = second(frame())

        assert later.collectors[0].success
        assert later.collectors[0].errors_total == 3
        assert "line 9: no (3 " in report_of(later).notes[0]


class TestARefusedRing:
    def test_is_noted_for_good_and_is_no_failure(self, second: Second) -> None:
        for state in (second(frame(), rings=REFUSED), second(frame(), rings=REFUSED)):
            assert report_of(state).notes == (f"phase_rings: {REFUSED.message}",)
            assert state.collectors[1].success  # no alert


class TestRingsLeftOut:
    def test_are_noted_while_they_are(self, second: Second) -> None:
        state, later = second(frame(), rings=LEFT_OUT), second(frame())

        assert report_of(state).notes == (f"phase_rings: {LEFT_OUT.message}",)
        assert state.rings_left_out == ((1000, 2),)
        assert state.collectors[1].success
        assert (report_of(later).notes, later.rings_left_out) == ((), ())

    def test_within_the_share_of_an_owner_are_a_failure(self, second: Second) -> None:
        rings = replace(LEFT_OUT, is_whole=False)

        assert not second(frame(), rings=rings).collectors[1].success

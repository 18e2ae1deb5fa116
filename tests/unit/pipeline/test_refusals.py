"""Specification of what a user is told of a ring or a file that could not be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.ring.events import RingsReading
from gpumon.core.sample import Device, Frame, GpuSample, Moment, Tick
from gpumon.core.state import CollectorState, MonitorState, refusal_note
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.pipeline.reports import report_of

MISSING = "/data/busy.jsonl is not there"


def monitor() -> Monitor:
    return Monitor(
        MonitorFacts(
            source="follow:/data/busy.jsonl", source_kind="follow", simulated=True,
            period_ns=NS_PER_S, boot_id="", started_wall_time_s=0.0,
        )
    )  # fmt: skip


def second(
    number: int, *frames: Frame, into: Monitor, rings: RingsReading | None = None
) -> MonitorState:
    tick = Tick(
        at_ns=number * NS_PER_S, late_ns=0, frames=frames, missed_count=not frames, error=None,
        duration_seconds=0.0,
    )  # fmt: skip
    return into.take(Moment(tick, rings or RingsReading(), float(number)))


def frame(*, trouble: str | None = None, rejected: int = 0) -> Frame:
    gpus = (GpuSample(device=Device(uuid="GPU-followed-0", index=0)),)
    return Frame(taken_at_ns=0, gpus=gpus, trouble=trouble, rejected=rejected)


class TestAFollowedFile:
    def test_that_is_missing_makes_its_collector_fail_until_it_is_there(self) -> None:
        watching = monitor()
        without = second(1, frame(trouble=MISSING), into=watching).collectors[0]
        unheard = second(2, into=watching).collectors[0]
        there = second(3, frame(), into=watching).collectors[0]

        assert (without.success, without.message, without.errors_total) == (False, MISSING, 0)
        assert not unheard.success
        assert there.success

    def test_that_is_missing_is_noted_in_the_report_until_it_is_there(self) -> None:
        watching = monitor()
        without = report_of(second(1, frame(trouble=MISSING), into=watching))
        there = report_of(second(2, frame(), into=watching))

        assert (without.notes, there.notes) == ((f"follow: {MISSING}",), ())

    def test_with_a_bad_line_is_noted_for_good(self) -> None:
        watching = monitor()
        second(1, frame(trouble="busy.jsonl, line 7: no", rejected=1), into=watching)
        second(2, frame(trouble="busy.jsonl, line 9: no", rejected=2), into=watching)
        later = second(3, frame(), into=watching)

        assert later.collectors[0].success
        assert later.collectors[0].errors_total == 3
        assert report_of(later).notes == ("follow: busy.jsonl, line 9: no (3 refused so far)",)


class TestARefusedRing:
    def test_is_noted_for_good(self) -> None:
        watching = monitor()
        refused = RingsReading(rejected=1, message="1-1.ring: not a phase ring")
        second(1, frame(), into=watching, rings=refused)
        later = second(2, frame(), into=watching, rings=refused)

        assert report_of(later).notes == ("phase_rings: 1-1.ring: not a phase ring",)

    def test_is_no_failure_that_pages_anybody(self) -> None:
        refused = RingsReading(rejected=1, message="1-1.ring: not a phase ring")

        assert second(1, frame(), into=monitor(), rings=refused).collectors[1].success


class TestRingsLeftOut:
    LEFT_OUT = RingsReading(message="2 phase rings are not read", left_out=((1000, 2),))

    def test_are_noted_while_they_are(self) -> None:
        watching = monitor()
        state = second(1, frame(), into=watching, rings=self.LEFT_OUT)
        later = second(2, frame(), into=watching)

        assert report_of(state).notes == ("phase_rings: 2 phase rings are not read",)
        assert state.rings_left_out == ((1000, 2),)
        assert state.collectors[1].success
        assert (report_of(later).notes, later.rings_left_out) == ((), ())

    def test_within_an_owners_part_are_a_failure(self) -> None:
        rings = replace(self.LEFT_OUT, is_whole=False)

        assert not second(1, frame(), into=monitor(), rings=rings).collectors[1].success


class TestANote:
    @pytest.mark.parametrize(
        ("name", "success", "errors", "message"),
        [
            ("follow", True, 0, None),
            ("follow", True, 0, "it was missing once"),
            ("follow", False, 3, None),
            ("nvml", False, 9, "the driver is gone"),
            ("state_file", True, 9, "the disk was full"),
        ],
    )
    def test_is_not_made_of_what_is_over_or_no_file_of_a_users(
        self, name: str, success: bool, errors: int, message: str | None
    ) -> None:
        assert refusal_note(CollectorState(name, success, 0.0, errors, message)) is None

    def test_of_a_source_without_gpus_is_what_it_says(self) -> None:
        watching = monitor()
        tick = Tick(
            at_ns=NS_PER_S, late_ns=0, frames=(), missed_count=1, error="no driver",
            duration_seconds=0.0,
        )  # fmt: skip
        state = watching.take(Moment(tick, RingsReading(), 1.0))

        assert report_of(state).notes == ("follow: no driver",)

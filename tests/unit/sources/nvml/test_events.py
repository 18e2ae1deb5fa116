"""Tests of XID and memory errors as events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from gpumon.core.device.driver_codes import MAX_XIDS
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.events import NvmlEvents
from tests.builders.driver import DriverStory, Fake
from tests.fakenvml import codes
from tests.fakenvml.work import XID
from tests.waiting import until

WAIT, OLDER_WAIT = "nvmlEventSetWait_v2", "nvmlEventSetWait"
CREATE, REGISTER = "nvmlEventSetCreate", "nvmlDeviceRegisterEvents"
Counts = tuple[tuple[int, int], ...]


def waiting_threads() -> int:
    return sum(1 for thread in threading.enumerate() if thread.name == "gpumon-events")


def wait_until(met: Callable[[], bool]) -> None:
    assert until(met, 20.0, every_s=0.002), "it did not happen in time"


def tick_until(story: DriverStory, met: Callable[[], bool]) -> None:
    """Tick until then: events come on a thread, by the machine's clock."""
    wait_until(lambda: bool(story.tick()) and story.trouble is None and met())


def xids(story: DriverStory, slot: int = 0) -> Counts:
    return story.sample(slot).xid_errors


def verify_xids(story: DriverStory, *counts: tuple[int, int], slot: int = 0) -> None:
    """Tick until the GPU has had so many errors of each XID."""
    tick_until(story, lambda: xids(story, slot) == counts)


class TestAnXid:
    def test_is_counted_from_the_next_frame_on(self, fake: Fake) -> None:
        story = fake.story()
        assert xids(story) == ()

        for xid in (31, 13, 31):
            fake.report_xid(0, xid)

        verify_xids(story, (13, 1), (31, 2))
        assert xids(story, 1) == ()
        reported = xids(story)
        story.tick(5)
        assert xids(story) is reported, "the same object until there is another"

    def test_is_reported_with_a_lost_gpu_and_other_gpus_still_report(self, fake: Fake) -> None:
        story = fake.story()
        fake.report_xid(0, 79)
        verify_xids(story, (79, 1))
        fake.lose(0)
        story.tick()
        assert story.sample(0).error is not None
        assert xids(story) == ((79, 1),)

        wait_until(lambda: fake.event_sets_held == 0)  # the wait says that a GPU is lost
        tick_until(story, lambda: fake.event_sets_held == 1)
        fake.report_xid(1, 31)
        verify_xids(story, (31, 1), slot=1)

    def test_is_counted_across_a_driver_reload(self, fake: Fake) -> None:
        story = fake.story()
        fake.report_xid(0, 13)
        verify_xids(story, (13, 1))

        fake.reload_driver()
        story.tick()
        assert story.trouble is not None
        tick_until(story, lambda: xids(story) == ((13, 1),))
        story.tick(6)
        fake.report_xid(0, 13)

        verify_xids(story, (13, 2))
        assert waiting_threads() == 1

    def test_of_a_gpu_that_was_reset_is_counted_and_old_handles_are_dropped(
        self, fake: Fake
    ) -> None:
        story = fake.story()
        for _ in range(5):
            fake.reset(0)
            story.tick(8)
        fake.report_xid(0, 48)

        verify_xids(story, (48, 1))
        events = story.source._events
        assert len(events._known) == 2
        assert events._set is not None
        assert len(events._set._uuid_of) == 3

    def test_of_a_gpu_that_was_added_is_counted(self, fake: Fake) -> None:
        story = fake.story()
        fake.reorder([0, 1, 2])
        story.tick(8)

        fake.report_xid(2, 74)

        verify_xids(story, (74, 1), slot=2)
        assert fake.calls(CREATE) == 1

    def test_is_one_of_a_bounded_number_per_gpu(self) -> None:
        events = NvmlEvents(wanted=True)
        for xid in (*range(10 * MAX_XIDS), 5):
            events._on_event("GPU-0", XID, xid)
        events._on_event("GPU-1", XID, 700)

        assert len(events.xids_of("GPU-0")) == MAX_XIDS
        assert events.xids_of("GPU-0")[5] == (5, 2)
        assert events.xids_of("GPU-1") == ((700, 1),)

    def test_in_a_storm_is_slowed_down(self, fake: Fake) -> None:
        story = fake.story()
        began_s = time.monotonic()
        for _ in range(100):
            fake.report_xid(0, 31)

        verify_xids(story, (31, 100))
        assert time.monotonic() - began_s > 0.3


class TestAnUncorrectedMemoryError:
    def test_causes_a_reading_of_the_counters(self, fake: Fake) -> None:
        story = fake.story(period_s=0.001)
        assert story.details(0).ecc_uncorrected_errors == 0

        fake.report_ecc(0, uncorrected=True)

        tick_until(story, lambda: story.details(0).ecc_uncorrected_errors == 1)
        assert story.seconds_passed < 5, "before it would have been their turn"


class TestADriverWithoutEvents:
    @pytest.mark.parametrize(
        ("supported", "code", "off", "asked"),
        [
            pytest.param(0, 0, [], 1, id="on any board"),
            pytest.param(XID, codes.NOT_SUPPORTED, [], 1, id="in the driver"),
            pytest.param(XID, codes.FUNCTION_NOT_FOUND, [], 1, id="in an older driver"),
            pytest.param(XID, 0, ["events"], 0, id="because they are switched off"),
        ],
    )
    def test_gets_no_thread_and_no_second_call(
        self, fake: Fake, supported: int, code: int, off: list[str], asked: int
    ) -> None:
        for slot in (0, 1):
            fake.gpu(slot).supported_events = supported
        fake.fail(CREATE, code)

        fake.story(off=off, period_s=60.0).tick(5)

        assert waiting_threads() == 0
        assert fake.event_sets_held == 0
        assert fake.calls(WAIT) == 0
        assert fake.calls(CREATE) == asked

    def test_of_the_newer_form_is_waited_for_by_the_older_call(
        self, fake: Fake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        has = NvmlLibrary.has
        monkeypatch.setattr(NvmlLibrary, "has", lambda it, name: name != WAIT and has(it, name))
        story = fake.story()
        fake.report_xid(1, 62)

        verify_xids(story, (62, 1), slot=1)
        assert fake.calls(OLDER_WAIT) > 0
        assert fake.calls(WAIT) == 0


class TestTheWait:
    @pytest.mark.measured
    @pytest.mark.parametrize("hangs", [False, True])
    def test_ends_with_the_source_or_hangs_alone(self, fake: Fake, hangs: bool) -> None:
        fake.delay(WAIT, 60_000_000 if hangs else 0)
        story = fake.story()
        wait_until(lambda: fake.waiting(WAIT) == 1)
        began_s = time.monotonic()
        story.tick()
        assert story.sample(0).error is None

        story.close()

        assert time.monotonic() - began_s < 2.0
        if hangs:  # its set is not freed under it
            assert fake.event_sets_held == 1
            assert fake.calls("nvmlShutdown") == 0
            fake.delay(WAIT, 0)  # the driver comes back after all
            wait_until(lambda: waiting_threads() == 0)
        assert waiting_threads() == 0
        assert fake.event_sets_held == 0
        assert fake.calls("nvmlShutdown") == 1

    @pytest.mark.parametrize("code", [codes.UNKNOWN, codes.UNINITIALIZED, codes.NOT_SUPPORTED])
    def test_that_keeps_failing_is_tried_less_often(self, fake: Fake, code: int) -> None:
        fake.fail(WAIT, code)
        story = fake.story()
        for _ in range(120):
            story.tick()
            assert story.sample(0).error is None
            wait_until(lambda: waiting_threads() == 0)

        assert 4 <= fake.calls(WAIT) <= 9
        assert fake.event_sets_held == 0

"""Specification of events: heard as they happen, never in anybody's way, and across reloads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import Frame
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.events import MOST_XIDS, NvmlEvents, XidCounts
from gpumon.sources.nvml.fields.table import nvml_options
from gpumon.sources.nvml.source import NvmlSource
from tests.builders_nvml import Clock, Open
from tests.fakenvml.control import (
    FUNCTION_NOT_FOUND,
    NOT_SUPPORTED,
    UNINITIALIZED,
    UNKNOWN,
    FakeNvml,
)
from tests.fakenvml.work import XID
from tests.patience import until

WAIT = "nvmlEventSetWait_v2"
OLDER_WAIT = "nvmlEventSetWait"
CREATE = "nvmlEventSetCreate"
REGISTER = "nvmlDeviceRegisterEvents"


def waiting_threads() -> int:
    return sum(1 for thread in threading.enumerate() if thread.name == "gpumon-events")


def xids(frame: Frame, index: int = 0) -> tuple[tuple[int, int], ...]:
    return frame.gpus[index].xid_errors


def wait_until(met: Callable[[], bool]) -> None:
    assert until(met, 20.0, every_s=0.002), "it did not happen in time"


def read_until(source: NvmlSource, holds: Callable[[Frame], bool]) -> Frame:
    frames = [source.read()]

    def is_there() -> bool:
        frames.append(source.read())
        return holds(frames[-1])

    wait_until(is_there)
    return frames[-1]


class TestAnXid:
    def test_is_counted_from_the_next_frame_on(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        source = open_source()
        assert xids(source.read()) == ()

        for xid in (31, 13, 31):
            fake_nvml.report_xid(0, xid)

        frame = read_until(source, lambda frame: xids(frame) == ((13, 1), (31, 2)))
        assert xids(frame, 1) == ()

    def test_comes_as_the_same_object_until_there_is_another(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        source = open_source()
        source.read()
        fake_nvml.report_xid(0, 13)
        told = xids(read_until(source, lambda frame: xids(frame) != ()))

        assert all(xids(source.read()) is told for _ in range(5))

    def test_that_takes_the_gpu_along_is_told_with_the_failure_and_others_are_still_heard(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        source = open_source()
        source.read()
        fake_nvml.report_xid(0, 79)
        read_until(source, lambda frame: xids(frame) == ((79, 1),))
        fake_nvml.lose(0)

        lost = read_until(source, lambda frame: frame.gpus[0].error is not None).gpus[0]
        assert lost.xid_errors == ((79, 1),)

        wait_until(lambda: fake_nvml.event_sets_held == 0)  # the wait says that a GPU is lost
        clock.ahead_ns += NS_PER_S
        read_until(source, lambda _: fake_nvml.event_sets_held == 1)
        fake_nvml.report_xid(1, 31)
        read_until(source, lambda frame: xids(frame, 1) == ((31, 1),))

    def test_is_heard_and_added_up_across_a_reload_of_the_driver(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        source = open_source()
        source.read()
        fake_nvml.report_xid(0, 13)
        read_until(source, lambda frame: xids(frame) == ((13, 1),))

        fake_nvml.reload_driver()
        with pytest.raises(Exception, match="driver"):
            source.read()
        clock.ahead_ns += 6 * NS_PER_S
        assert xids(source.read()) == ((13, 1),)
        fake_nvml.report_xid(0, 13)

        read_until(source, lambda frame: xids(frame) == ((13, 2),))
        assert waiting_threads() == 1

    def test_of_a_gpu_that_was_reset_is_heard_under_its_uuid(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        source = open_source()
        source.read()
        fake_nvml.reset(0)
        fake_nvml.report_xid(0, 48)

        frame = read_until(source, lambda frame: bool(xids(frame)))
        assert xids(frame) == ((48, 1),)

    def test_of_a_gpu_that_was_added_later_is_heard(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        source = open_source()
        source.read()
        fake_nvml.reorder([0, 1, 2])
        clock.ahead_ns += 6 * NS_PER_S
        read_until(source, lambda frame: len(frame.gpus) == 3)
        clock.ahead_ns += NS_PER_S
        source.read()

        fake_nvml.report_xid(2, 74)

        read_until(source, lambda frame: xids(frame, 2) == ((74, 1),))
        assert fake_nvml.calls(CREATE) == 1

    def test_of_a_gpu_in_mig_parts_is_the_whole_gpus(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.cut(0, 2)
        source = open_source()
        source.read()
        fake_nvml.report_xid(0, 94, part=1)

        frame = read_until(source, lambda frame: xids(frame) != ())
        assert xids(frame) == ((94, 1),)
        assert frame.gpus[0].device.mig_enabled


class TestAMemoryErrorThatIsNotCorrected:
    def test_has_the_counters_read_at_once(self, fake_nvml: FakeNvml, open_source: Open) -> None:
        source = open_source()
        details = source.read().gpus[0].details
        assert details is not None
        assert details.ecc_uncorrected_errors == 0

        fake_nvml.report_ecc(0, uncorrected=True)

        def shows_it(frame: Frame) -> bool:
            details = frame.gpus[0].details
            return details is not None and details.ecc_uncorrected_errors == 1

        read_until(source, shows_it)

    def test_is_heard_and_a_corrected_one_is_not(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        events = NvmlEvents(wanted=True)
        events.follow(library, [("GPU-0", handle)], 0)
        try:
            fake_nvml.report_ecc(0, uncorrected=False)
            fake_nvml.report_xid(0, 13)
            wait_until(lambda: events.counts.of("GPU-0") == ((13, 1),))
            after_a_corrected_one = events.take_news()
            fake_nvml.report_ecc(0, uncorrected=True)
            wait_until(lambda: events.news)

            assert (after_a_corrected_one, events.take_news()) == (set(), {"GPU-0"})
        finally:
            events.release(library)


class TestTheCounts:
    def test_know_a_bounded_number_of_xids_of_each_gpu(self) -> None:
        counts = XidCounts()
        for xid in range(10 * MOST_XIDS):
            counts.add("GPU-0", xid)
        counts.add("GPU-0", 5)
        counts.add("GPU-1", 700)

        assert len(counts.of("GPU-0")) == MOST_XIDS
        assert counts.of("GPU-0")[5] == (5, 2)
        assert counts.of("GPU-1") == ((700, 1),)


class TestWhereThereAreNoEvents:
    def test_on_any_board_no_thread_is_started_and_nothing_is_kept(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        for slot in (0, 1):
            fake_nvml.gpu(slot).supported_events = 0
        open_source().read()

        assert waiting_threads() == 0
        assert fake_nvml.event_sets_held == 0
        assert fake_nvml.calls(WAIT) == 0

    @pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND])
    def test_in_the_driver_no_thread_is_started_and_it_is_asked_once(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock, code: int
    ) -> None:
        fake_nvml.fail(CREATE, code)
        source = open_source()
        for _ in range(5):
            clock.ahead_ns += 60 * NS_PER_S
            source.read()

        assert waiting_threads() == 0
        assert fake_nvml.calls(CREATE) == 1

    def test_because_they_are_switched_off_nothing_is_asked(
        self, fake_nvml: FakeNvml, clock: Clock
    ) -> None:
        source = NvmlSource(clock, options=nvml_options(off=["events"]))
        source.read()
        source.close()

        assert fake_nvml.calls(CREATE) == 0
        assert waiting_threads() == 0

    def test_of_one_kind_the_others_are_registered(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        """The fake refuses a registration of what a GPU does not support."""
        fake_nvml.gpu(0).supported_events = XID
        source = open_source()
        source.read()
        fake_nvml.report_xid(0, 13)

        read_until(source, lambda frame: xids(frame) == ((13, 1),))
        assert fake_nvml.calls(REGISTER) == 2

    def test_in_their_newer_form_the_older_call_waits(
        self, fake_nvml: FakeNvml, open_source: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        has = NvmlLibrary.has
        monkeypatch.setattr(NvmlLibrary, "has", lambda it, name: name != WAIT and has(it, name))
        source = open_source()
        source.read()
        fake_nvml.report_xid(1, 62)

        read_until(source, lambda frame: xids(frame, 1) == ((62, 1),))
        assert fake_nvml.calls(OLDER_WAIT) > 0
        assert fake_nvml.calls(WAIT) == 0


class TestTheWait:
    @pytest.mark.measured
    def test_ends_with_the_source_and_frees_what_it_held(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        source = open_source()
        source.read()
        wait_until(lambda: fake_nvml.waiting(WAIT) == 1)

        began_s = time.monotonic()
        source.close()

        assert time.monotonic() - began_s < 2.0
        assert waiting_threads() == 0
        assert fake_nvml.event_sets_held == 0
        assert fake_nvml.calls("nvmlShutdown") == 1

    @pytest.mark.measured
    def test_that_hangs_hangs_alone_and_its_set_is_not_freed_under_it(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.delay(WAIT, 60_000_000)
        source = open_source()
        source.read()
        wait_until(lambda: fake_nvml.waiting(WAIT) == 1)

        began_s = time.monotonic()
        assert source.read().gpus[0].error is None
        source.close()

        assert time.monotonic() - began_s < 2.0
        assert fake_nvml.event_sets_held == 1
        assert fake_nvml.calls("nvmlShutdown") == 0
        fake_nvml.delay(WAIT, 0)  # the driver comes back after all
        wait_until(lambda: waiting_threads() == 0)
        assert fake_nvml.event_sets_held == 0
        assert fake_nvml.calls("nvmlShutdown") == 1

    def test_is_in_no_figure_of_the_drivers_cost(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        source = open_source()
        source.read()
        wait_until(lambda: fake_nvml.calls(WAIT) > 2)
        clock.ahead_ns += NS_PER_S

        costs = dict(source.read().call_seconds)

        assert REGISTER in costs
        assert not [name for name in costs if "Wait" in name]

    @pytest.mark.parametrize("code", [UNKNOWN, UNINITIALIZED, NOT_SUPPORTED])
    def test_that_fails_again_and_again_is_tried_less_and_less(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock, code: int
    ) -> None:
        fake_nvml.fail(WAIT, code)
        source = open_source()
        for _ in range(120):  # two minutes
            clock.ahead_ns += NS_PER_S
            assert source.read().gpus[0].error is None
            wait_until(lambda: waiting_threads() == 0)

        assert 4 <= fake_nvml.calls(WAIT) <= 9
        assert fake_nvml.event_sets_held == 0

    def test_takes_a_storm_one_after_the_other(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        source = open_source()
        source.read()
        began_s = time.monotonic()
        for _ in range(100):
            fake_nvml.report_xid(0, 31)

        read_until(source, lambda frame: xids(frame) == ((31, 100),))
        assert time.monotonic() - began_s > 0.3

"""Any sequence of faults of a driver: the figures stay true, and every GPU is read in the end.

The GPUs are always busy, so no idle time may be counted. ``DriverStory`` checks its laws at each
tick.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from gpumon.pipeline.state_report import report_of
from gpumon.sources.gpu_source import ReadNow
from tests.builders.driver import EVERY_FIELD, DriverStory
from tests.fakenvml.generations import DriverGeneration
from tests.fakenvml.in_process import shown_to_this_process
from tests.fakenvml.layout import FUNCTIONS, NO_OVERRIDE

GPUS = 3
CODES = st.sampled_from([1, 2, 3, 4, 6, 7, 9, 10, 13, 15, 16, 17, 18, 21, 77, 999])
SLOTS = st.integers(0, GPUS - 1)
WITHOUT_EVENTS = EVERY_FIELD - {"events"}
"""Starting their thread takes longer than everything else."""

Open = Callable[[], tuple[DriverStory, Callable[[], None]]]


class DriverInTrouble(RuleBasedStateMachine):
    """A driver and its GPUs, with everything that can happen to them."""

    open_story: Open
    functions: tuple[str, ...]

    @initialize()
    def starts_well(self) -> None:
        self.story, self.end = self.open_story()
        self.fake = self.story.fake
        self.was_partitioned = [False] * GPUS

    @rule(data=st.data(), code=CODES, gpu=st.none() | SLOTS)
    def a_function_fails(self, data: st.DataObject, code: int, gpu: int | None) -> None:
        self.fake.fail(data.draw(st.sampled_from(self.functions), "function"), code, gpu=gpu)

    @rule()
    def functions_work_again(self) -> None:
        for function in self.functions:
            self.fake.fail(function, 0)
            for slot in range(GPUS):
                self.fake.fail(function, 0, gpu=slot)

    @rule(slot=SLOTS, code=st.sampled_from([15, 16, 999]))
    def a_gpu_is_lost(self, slot: int, code: int) -> None:
        self.fake.lose(slot, code)

    @rule(slot=SLOTS)
    def a_gpu_is_found(self, slot: int) -> None:
        self.fake.find(slot)

    @rule(slot=SLOTS)
    def a_gpu_is_reset(self, slot: int) -> None:
        self.fake.reset(slot)

    @rule()
    def the_driver_is_reloaded(self) -> None:
        self.fake.reload_driver()

    @rule(code=st.sampled_from([0, 0, 9, 17, 18, 999]))
    def the_driver_goes_and_comes(self, code: int) -> None:
        self.fake.fail_everything(code)

    @rule(order=st.permutations(range(GPUS)), plugged=st.integers(0, GPUS))
    def gpus_are_reordered(self, order: list[int], plugged: int) -> None:
        self.fake.reorder(order[:plugged])

    @rule(slot=SLOTS, parts=st.integers(1, 3))
    def a_gpu_is_partitioned(self, slot: int, parts: int) -> None:
        self.fake.cut(slot, parts)
        self.was_partitioned[slot] = True
        for part in range(parts):
            self.fake.part_wave(slot, part, period_s=1.0, busy_ratio=1.0)

    @rule(slot=SLOTS)
    def mig_is_switched_off(self, slot: int) -> None:
        self.fake.uncut(slot)
        self.was_partitioned[slot] = False

    @rule(slot=SLOTS)
    def a_ring_runs_dry(self, slot: int) -> None:
        self.fake.ring(slot, [])
        self.fake.gpu(slot).rates_percent = 100

    @rule(slot=SLOTS)
    def a_ring_fills_again(self, slot: int) -> None:
        self.fake.wave(slot, period_s=1.0, busy_ratio=1.0)
        self.fake.gpu(slot).rates_percent = NO_OVERRIDE

    @rule(by_s=st.sampled_from([-3600, -30, 30, 3600]))
    def the_wall_clock_is_set(self, by_s: int) -> None:
        self.story.clock.set_wall_clock(by_s)

    @rule(needed=st.sampled_from([ReadNow.NOTHING, *ReadNow]))
    def a_user_comes_or_goes(self, needed: ReadNow) -> None:
        self.story.reads = needed

    @rule(count=st.sampled_from([1, 1, 2, 6]))
    def time_passes(self, count: int) -> None:
        self.story.tick(count)

    @rule(seconds=st.sampled_from([0.01, 3.0, 40.0]))
    def is_not_read_for_a_while(self, seconds: float) -> None:
        self.fake.advance(seconds)
        self.story.tick()

    @invariant()
    def no_gpu_was_idle(self) -> None:
        for gpu in self.story.state.gpus:
            assert gpu.totals.observed_ns == gpu.totals.busy_ns, gpu.device

    @invariant()
    def a_report_begins_with_the_gpus_that_cannot_be_read(self) -> None:
        state = self.story.state
        unread = {
            gpu.device.uuid
            for gpu in state.gpus
            if not gpu.present and (gpu.listed or gpu.device.parent_uuid is None)
        }
        report = report_of(state)
        lost = {gpu.uuid for gpu in report.gpus if gpu.is_lost}

        assert lost >= unread
        text = render_report(report, TextStyle())
        assert (text.split(": ")[1] == "GPU lost") is bool(lost), text
        reported = encode_report(report)
        again = encode_report(decode_report(reported))
        assert [gpu["troubles"] for gpu in again["gpus"]] == [
            gpu["troubles"] for gpu in reported["gpus"]
        ]

    def teardown(self) -> None:
        if not hasattr(self, "story"):
            return
        try:
            self._ends_well()
        finally:
            self.end()

    def _ends_well(self) -> None:
        self.functions_work_again()
        self.fake.fail_everything(0)
        for slot in range(GPUS):
            self.fake.find(slot)
        self.fake.reorder(range(GPUS))
        self.story.reads = ReadNow.SAMPLES
        self.story.tick(20)
        for slot, gained_s in enumerate(self.story.gained_s(*range(GPUS), ticks=20)):
            if not self.was_partitioned[slot]:
                assert gained_s == pytest.approx(20, abs=1), (slot, self.story.message)
        assert self.story.message is None
        assert not any(gpu.is_lost for gpu in report_of(self.story.state).gpus)
        self.no_gpu_was_idle()


@pytest.fixture
def open_story(
    library_of: Callable[[DriverGeneration], Path],
    driver_generation: DriverGeneration,
    tmp_path: Path,
) -> Open:
    """Starts a story on three busy GPUs."""
    library = library_of(driver_generation)

    def opened() -> tuple[DriverStory, Callable[[], None]]:
        stack = ExitStack()
        fake = stack.enter_context(
            shown_to_this_process(library, tmp_path / "gpus", driver_generation, gpus=GPUS)
        )
        fake.keep_busy(*range(GPUS))
        story = DriverStory(fake, options=WITHOUT_EVENTS)
        stack.callback(story.close)
        return story, stack.close

    return opened


class TestADriverInTrouble:
    def test_never_causes_idle_time_and_is_read_again_when_it_is_over(
        self, open_story: Open
    ) -> None:
        story, end = open_story()
        story.tick(12)
        called = tuple(name for name in story.fake.all_calls() if name in FUNCTIONS)
        end()
        assert len(called) > 10, "few functions were called: little of the driver could fail"
        DriverInTrouble.open_story, DriverInTrouble.functions = staticmethod(open_story), called

        run_state_machine_as_test(
            DriverInTrouble,
            settings=settings(
                max_examples=60 if os.environ.get("GPUMON_WHOLE_TABLE") else 15,
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

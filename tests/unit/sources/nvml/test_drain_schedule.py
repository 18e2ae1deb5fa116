"""Tests of how often sample rings are drained, and that nothing is lost by that."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.errors import UsageError
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.nvml.drain_schedule import DrainSchedule
from gpumon.sources.nvml.fields.table import ReadTimes, nvml_options
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.process_owners import Owner, ProcessOwners
from tests.builders.driver import DriverStory, Fake, busy_ns, holes_ns
from tests.builders.driver_faults import DRAIN, LIST, POWER, RATES
from tests.builders.nvml import DriverClock
from tests.fakenvml import codes
from tests.waiting import wait_until

H100_DEPTH, H100_WINDOW_S = 71, 0.2


def like_an_h100(fake: Fake, *, depth: int = H100_DEPTH) -> None:
    for slot in (0, 1):
        fake.gpu(slot).ring_depth = depth
        fake.wave(slot, period_s=7.0, busy_ratio=0.7, window_s=H100_WINDOW_S)


def story_of(fake: Fake, after_s: float = 20.0) -> DriverStory:
    """A story whose ticks read only what is due."""
    story = fake.story(off=["events"], after_s=after_s)
    story.reads = ReadNow.NOTHING
    fake.forget_calls()
    return story


class TestAnInterval:
    @pytest.mark.parametrize(
        ("entries", "step_s", "seconds"),
        [(71, 0.2, 4.0), (50, 0.2, 3.33), (5, 0.2, 0.33), (0, 0.2, 0.0), (71, 1.0, 3.94)],
        ids=["H100", "ring of 10 s", "ring of 1 s", "empty ring", "sampled seldom while idle"],
    )
    def test_is_a_third_of_what_the_ring_keeps_and_4_s_at_most(
        self, entries: int, step_s: float, seconds: float
    ) -> None:
        schedule = DrainSchedule(NS_PER_S)
        schedule.learn(entries, round(step_s * NS_PER_S), 0)

        assert schedule.interval_ns / NS_PER_S == pytest.approx(seconds, abs=0.01)

    def test_of_the_user_counts_up_to_half_of_the_ring(self) -> None:
        schedule = DrainSchedule(NS_PER_S, 7 * NS_PER_S)
        schedule.learn(71, NS_PER_S // 5, 0)
        assert schedule.interval_ns == 7 * NS_PER_S

        schedule.check_choice()
        schedule = DrainSchedule(NS_PER_S, 7 * NS_PER_S)
        schedule.learn(68, NS_PER_S // 5, 0)

        assert schedule.interval_ns == 6.8 * NS_PER_S
        with pytest.raises(UsageError, match=r"--drain-every 7: .* only 13.6 s .* at most 6\.8"):
            schedule.check_choice()


class TestDrains:
    def test_are_seldom_and_lose_nothing(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        began_ns = fake.now_ns()

        story.tick(120)

        assert fake.calls(DRAIN) == pytest.approx(2 * 120 / 4, abs=4)
        samples = story.busy(0, since_ns=began_ns)
        assert holes_ns(samples) == []
        assert samples[-1].end_ns - samples[0].start_ns > 115 * NS_PER_S
        truth_ns = fake.busy_ns(0, samples[0].start_ns, samples[-1].end_ns)
        assert busy_ns(samples) == pytest.approx(truth_ns, rel=0.01)
        assert story.sample(0).utilization_ratio is not None
        pauses = story.gpu(0).totals.pauses
        assert pauses.count == pytest.approx(story.seconds_passed / 7, abs=2)
        assert pauses.total_ns / pauses.count == pytest.approx(2.1 * NS_PER_S, rel=0.05)

    def test_go_on_after_the_driver_is_reloaded(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        fake.reload_driver()

        assert story.ticks_until_read([0, 1], most=15)
        gained_s = story.gained_s(0, 1, ticks=60)

        assert gained_s == pytest.approx([60, 60], abs=5)

    def test_lose_nothing_in_a_hang_of_nine_seconds(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        for _ in range(10):
            story.tick(6)
            fake.advance(9.0)
        story.tick(6)

        assert holes_ns(story.busy(0)) == []

    def test_are_not_needed_for_process_lists(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        story.reads = ReadNow.PROCESSES

        story.tick(10)

        assert fake.calls(LIST) >= 2 * 10
        assert fake.calls(DRAIN) <= 2 * 3
        assert story.sample(0).processes_at_ns == fake.now_ns()

    @pytest.mark.parametrize("by_s", [1, -1, 3, -3, 3600, -3600])
    @pytest.mark.parametrize("after", range(4))
    def test_come_at_once_when_the_clock_of_the_stamps_is_set(
        self, fake: Fake, by_s: int, after: int
    ) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        story.tick(after)
        began_ns = fake.now_ns()
        story.clock.set_wall_clock(by_s)

        story.tick()

        assert story.sample(0).busy
        story.tick(20)
        samples = story.busy(0)
        assert holes_ns(samples) == []
        after_ns = [one for one in samples if one.start_ns >= began_ns - NS_PER_S]
        truth_ns = fake.busy_ns(0, after_ns[0].start_ns, after_ns[-1].end_ns)
        assert busy_ns(after_ns) == pytest.approx(truth_ns, rel=0.01)

    def test_come_each_tick_while_a_user_watches(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        story.reads = ReadNow.SAMPLES

        story.tick(10)

        assert fake.calls(DRAIN) == 2 * 10

    def test_of_a_short_ring_come_each_tick(self, fake: Fake) -> None:
        like_an_h100(fake, depth=5)
        story = story_of(fake)

        story.tick(10)

        assert fake.calls(DRAIN) == 2 * 10

    def test_come_each_tick_soon_after_a_ring_has_shrunk(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        fake.gpu(0).ring_depth = fake.gpu(1).ring_depth = 5
        story.tick(12)
        fake.forget_calls()
        began_ns = fake.now_ns()

        story.tick(10)

        assert fake.calls(DRAIN) == 2 * 10
        assert holes_ns(story.busy(0, since_ns=began_ns)) == []

    def test_become_seldom_once_a_ring_has_filled(self, fake: Fake) -> None:
        fake.ring(0, [])
        story = story_of(fake, after_s=1.0)
        like_an_h100(fake)
        story.tick(70)
        fake.forget_calls()

        story.tick(40)

        assert fake.calls(DRAIN) <= 2 * 11

    def test_of_gpus_of_one_user_come_together(self, fake: Fake) -> None:
        like_an_h100(fake)
        for slot in (0, 1):
            fake.run(slot, 4000 + slot)
        story = story_of(fake)

        story.tick(40)

        drained = [[bool(gpu.busy) for gpu in frame.gpus] for frame in story.frames[-40:]]
        assert all(first == second for first, second in drained)

    def test_of_gpus_without_processes_come_together(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)

        story.tick(40)

        drained = [[bool(gpu.busy) for gpu in frame.gpus] for frame in story.frames[-30:]]
        assert all(first == second for first, second in drained)

    def test_of_gpus_of_two_users_take_turns(
        self, fake: Fake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ProcessOwners, "owner", lambda _, pid: Owner(pid))
        like_an_h100(fake)
        for slot in (0, 1):
            fake.run(slot, 4000 + slot)
        story = story_of(fake, after_s=0.0)

        story.tick(40)

        drained = [sum(bool(gpu.busy) for gpu in frame.gpus) for frame in story.frames[-30:]]
        assert max(drained) == 1

    def test_come_at_once_when_work_begins(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        for pid in range(4000, 4004):
            fake.run(0, pid)
            while pid not in {process.pid for process in story.sample(0).processes or ()}:
                story.tick()
            fake.forget_calls()

            story.tick()

            assert fake.calls(DRAIN) >= 1

    def test_leave_the_power_ring_of_a_board_alone_whose_power_is_a_mean(self, fake: Fake) -> None:
        like_an_h100(fake)
        fake.gpu(1).compute_capability = 80  # a GA100
        story = story_of(fake, after_s=0.0)
        story.reads = ReadNow.SAMPLES

        story.tick(10)

        assert fake.calls(DRAIN) == (2 + 1) * 10
        assert story.sample(0).power_watts is not None
        assert story.sample(1).power_watts is not None
        assert [story.sample(slot).power_over_ns for slot in (0, 1)] == [NS_PER_S, None]


class TestTheUsersChoice:
    def source(self, fake: Fake) -> NvmlSource:
        clock = DriverClock(fake)
        times = ReadTimes(drain_s=7.0)
        return NvmlSource(clock, times=times, read_clock_ns=clock.read_clock_ns)

    def test_is_refused_at_the_first_reading(self, fake: Fake) -> None:
        like_an_h100(fake, depth=30)
        with closing(self.source(fake)) as source:
            fake.advance(60.0)
            with pytest.raises(UsageError, match=r"only \d s of samples; use at most \d"):
                source.read()

    def test_is_shortened_and_not_refused_if_a_ring_shrinks_later(self, fake: Fake) -> None:
        like_an_h100(fake)
        with closing(self.source(fake)) as source:
            fake.advance(60.0)
            source.read()
            fake.gpu(0).ring_depth = fake.gpu(1).ring_depth = 10
            for _ in range(60):
                fake.advance(1.0)
                assert source.read(ReadNow.NOTHING).gpus[0].error is None
            fake.forget_calls()
            for _ in range(10):
                fake.advance(1.0)
                source.read(ReadNow.NOTHING)

        assert fake.calls(DRAIN) == 2 * 10


class TestATickBetweenDrains:
    def test_makes_no_call_and_no_new_state(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake, after_s=31.0)
        quiet = 0
        for _ in range(24):
            before = story.state
            fake.forget_calls()
            story.tick()
            quiet += story.frame.is_quiet
            assert story.frame.is_quiet is not any(fake.all_calls().values())
            assert story.state.repeats(before) is story.frame.is_quiet
            assert not (story.frame.is_quiet and any(gpu.busy for gpu in story.frame.gpus))

        assert quiet == 18

    @pytest.mark.parametrize("wanted", [ReadNow.SAMPLES, ReadNow.PROCESSES])
    def test_reads_what_is_wanted(self, fake: Fake, wanted: ReadNow) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        story.reads = wanted

        for _ in range(10):
            story.tick()
            assert not story.frame.is_quiet

    def test_does_not_come_before_the_first_reading_of_a_reloaded_driver(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        while not story.frame.is_quiet:
            story.tick()
        story.reads = ReadNow.SAMPLES
        fake.reload_driver()
        frames = len(story.frames)
        story.tick()
        assert len(story.frames) == frames, "NVML as a whole cannot be read"
        story.reads = ReadNow.NOTHING

        while len(story.frames) == frames:
            story.tick()

        assert not story.frame.is_quiet

    def test_measures_pcie_where_a_user_wants_it(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = fake.story(on=["pcie"], after_s=20.0)
        story.reads = ReadNow.NOTHING

        for _ in range(10):
            story.tick()
            assert not story.frame.is_quiet

    def test_comes_before_slow_values_are_read_early(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)

        story.tick(120)

        assert fake.calls("nvmlDeviceGetMemoryInfo_v2") == pytest.approx(2 * 120 / 4, abs=2)
        assert fake.calls("nvmlDeviceGetTotalEnergyConsumption") <= 2 * 120 / 28 + 2
        assert fake.calls("nvmlGpmSampleGet") <= 2 * 120 / 15 + 2

    def test_reports_an_event(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = fake.story(after_s=20.0)
        story.reads = ReadNow.NOTHING
        for xid in (13, 31, 43):
            while not story.frame.is_quiet:
                story.tick()
            fake.report_xid(1, xid)
            began_ns = fake.now_ns()

            wait_until(partial(_has_xid, story, xid))

            assert fake.now_ns() == began_ns

    def test_shows_a_value_that_came_late(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = DriverStory(fake, options=nvml_options(off=["events"]), slow_patience_s=0.0)
        with closing(story):
            story.reads = ReadNow.NOTHING
            story.tick(20)
            fake.gpu(0).memory_used = 5 << 30
            story.tick(8)
            began_ns = fake.now_ns()

            wait_until(lambda: _memory(story) == 5 << 30)

            assert fake.now_ns() == began_ns

    def test_still_ends_the_presence_of_a_gpu_that_does_not_answer(self, fake: Fake) -> None:
        like_an_h100(fake)
        story = story_of(fake)
        fake.fail_everything(codes.UNKNOWN)

        story.tick(15)

        assert not story.gpu(0).present


def _has_xid(story: DriverStory, xid: int) -> bool:
    """Whether it is known after another reading, at the same time."""
    story.tick_at_once()
    return xid in dict(story.gpu(1).xid_errors)


def _memory(story: DriverStory) -> int | None:
    story.tick_at_once()
    return story.sample(0).memory_used_bytes


class TestARingThatRunsDryWhileIdle:
    def test_is_observed_by_the_other_call_in_each_tick(self, fake: Fake) -> None:
        for slot in (0, 1):
            fake.gpu(slot).ring_depth = H100_DEPTH
            fake.wave(
                slot, period_s=20.0, busy_ratio=0.3, window_s=H100_WINDOW_S, dry_when_idle=True
            )
        story = story_of(fake, after_s=21.0)
        began_ns = fake.now_ns()

        story.tick(200)

        samples = story.busy(0, since_ns=began_ns)
        observed_ns = sum(sample.length_ns for sample in samples)
        assert observed_ns > 0.95 * (fake.now_ns() - began_ns)
        truth_ns = fake.busy_ns(0, began_ns, fake.now_ns())
        assert busy_ns(samples) == pytest.approx(truth_ns, rel=0.05)
        assert fake.calls(DRAIN) < 2 * 200 / 2
        assert fake.calls(RATES) > 200

    def test_may_be_empty_always(self, fake: Fake) -> None:
        like_an_h100(fake, depth=0)
        story = story_of(fake)
        began_s = story.observed_s(0)

        story.tick(40)

        assert story.observed_s(0) - began_s > 0.95 * 40

    def test_is_drained_where_the_other_call_fails(self, fake: Fake) -> None:
        fake.ring(0, [])
        fake.fail(RATES, codes.UNKNOWN, gpu=0)
        story = story_of(fake, after_s=5.0)

        story.tick(10)

        assert story.sample(0).error is None
        assert story.sample(0).utilization_ratio is None
        assert fake.calls(POWER) > 0

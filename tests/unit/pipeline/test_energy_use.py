"""Energy by use, from the fake driver's counter to the state: what each part really drew."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise

import pytest

from gpumon.core.accounting.energy_use import EnergyUse
from tests.builders.driver import DriverStory
from tests.fakenvml.control import FakeNvml
from tests.needs import in_make_truth

PID, BUSY_WATTS, IDLE_WATTS = 4711, 600.0, 120.0


class Drawing:
    """A GPU that draws 600 W at work and 120 W else."""

    def __init__(self, fake: FakeNvml, *, period_s: float, busy_ratio: float) -> None:
        fake.draw(0, busy_watts=BUSY_WATTS, idle_watts=IDLE_WATTS)
        fake.wave(0, period_s=period_s, busy_ratio=busy_ratio)
        fake.run(0, PID)
        self.story = DriverStory(fake)
        self.began_joules = self._board_joules

    @property
    def _board_joules(self) -> float:
        joules = self.story.sample(0).energy_joules
        assert joules is not None
        return joules

    @property
    def used(self) -> EnergyUse:
        return self.story.gpu(0).energy

    @property
    def board_joules(self) -> float:
        """The growth of the board's counter."""
        return self._board_joules - self.began_joules


@pytest.fixture
def drawing(fake_nvml: FakeNvml) -> Callable[..., Drawing]:
    return lambda period_s, busy_ratio: Drawing(fake_nvml, period_s=period_s, busy_ratio=busy_ratio)


@pytest.mark.parametrize("busy_ratio", [0.3, 0.7])
@pytest.mark.parametrize("period_s", [1.0, 1.7, 4.0, 10.0, pytest.param(45.0, marks=in_make_truth)])
def test_each_use_is_what_the_board_drew_for_it(
    drawing: Callable[..., Drawing], period_s: float, busy_ratio: float
) -> None:
    one = drawing(period_s, busy_ratio)
    with closing(one.story):
        one.story.pass_s(max(600, 80 * period_s))
        totals, used = one.story.gpu(0).totals, one.used

        both = used.busy_joules + used.lost_joules + used.not_in_use_joules
        assert both + used.pending_joules == pytest.approx(one.board_joules, rel=0.02)
        assert both > 0.85 * one.board_joules  # the counter is read every half minute
        share = both / one.board_joules
        busy_s, lost_s = totals.busy_ns / 1e9, sum(totals.idle_ns.values()) / 1e9
        assert used.busy_joules == pytest.approx(BUSY_WATTS * busy_s * share, rel=0.05)
        assert used.lost_joules == pytest.approx(IDLE_WATTS * lost_s * share, rel=0.05)


def test_nothing_is_split_before_it_is_known_what_either_draws(
    drawing: Callable[..., Drawing],
) -> None:
    one = drawing(1.0, 0.5)
    with closing(one.story):
        used = [one.used for _ in range(60) if one.story.tick()]

    assert used[0].busy_joules == used[0].lost_joules == 0
    assert all(early.busy_joules <= late.busy_joules for early, late in pairwise(used))
    assert all(early.lost_joules <= late.lost_joules for early, late in pairwise(used))


def test_energy_of_time_without_a_job_is_not_in_use(fake_nvml: FakeNvml) -> None:
    fake_nvml.draw(0, busy_watts=BUSY_WATTS, idle_watts=IDLE_WATTS)
    with closing(DriverStory(fake_nvml)) as story:
        story.pass_s(300)
        used = story.gpu(0).energy

    assert used.busy_joules == used.lost_joules == 0
    assert used.not_in_use_joules == pytest.approx(IDLE_WATTS * 300, rel=0.15)


def test_a_pause_that_has_no_cause_yet_keeps_its_energy_pending(fake_nvml: FakeNvml) -> None:
    fake_nvml.draw(0, busy_watts=BUSY_WATTS, idle_watts=IDLE_WATTS)
    fake_nvml.wave(0, period_s=1.0, busy_ratio=1.0)
    fake_nvml.run(0, PID)
    with closing(DriverStory(fake_nvml)) as story:
        story.pass_s(120)
        fake_nvml.wave(0, period_s=1.0, busy_ratio=0.0)
        story.pass_s(240)
        paused = story.gpu(0).energy
        fake_nvml.wave(0, period_s=1.0, busy_ratio=1.0)
        story.pass_s(60)
        ended = story.gpu(0).energy

    assert paused.lost_joules == 0
    assert paused.pending_joules == pytest.approx(IDLE_WATTS * 240, rel=0.2)
    assert ended.lost_joules == pytest.approx(IDLE_WATTS * 240, rel=0.1)
    assert ended.not_in_use_joules == 0


def test_a_reset_of_the_board_counter_loses_nothing_that_was_counted(
    drawing: Callable[..., Drawing],
) -> None:
    one = drawing(4.0, 0.5)
    with closing(one.story):
        one.story.pass_s(120)
        before = one.used
        one.story.fake.gpu(0).energy_mj = 0
        one.story.fake.control.origin_ns = one.story.fake.now_ns() - 10**9
        one.story.pass_s(120)
        after = one.used

    assert after.busy_joules > before.busy_joules
    assert after.lost_joules > before.lost_joules


def test_energy_of_time_that_was_not_observed_has_no_use(drawing: Callable[..., Drawing]) -> None:
    one = drawing(4.0, 0.5)
    with closing(one.story):
        one.story.pass_s(120)
        one.story.fake.lose(0)
        one.story.pass_s(600)
        one.story.fake.find(0)
        one.story.pass_s(60)
        back = one.used
        one.story.pass_s(120)
        used, drawn = one.used, (BUSY_WATTS + IDLE_WATTS) / 2

    assert back.pending_joules > 550 * drawn
    assert used.busy_joules - back.busy_joules == pytest.approx(60 * BUSY_WATTS, rel=0.3)
    assert used.busy_joules < 180 * BUSY_WATTS

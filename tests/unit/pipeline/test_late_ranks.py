"""For which rank the others of a job wait, and for how long.

The waits of all ranks here are known, and so is how long each waited in its steps for another one
while its GPU read as busy.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from gpumon.core.accounting.rank_wait import SUSPENDED, RankWait
from gpumon.core.phase import IdleCause, TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import (
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import BusySample, Device, Frame, GpuSample
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.verdict import VerdictName
from gpumon.core.waits.evidence import HostReading, ProcessState
from tests.builders.monitor import gpu, monitor, reading, ring_reading
from tests.builders.time import s
from tests.call_count import count_calls

WAIT, STEP = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP
_BEGAN_NS: Final = s(1000)
_WINDOW_S: Final = 0.25


@dataclass
class Rank:
    """One rank of a job, on the GPU of its number.

    Attributes:
        wait_s: How long it takes before each of its steps, on average.
        wait_in: The phase in which it does.
        step_s: What its GPU works in each step.
        jitter: By what part of its wait that varies.
        board: Model of its GPU.
        samples: How many it counts in each step; 0: it counts none.
        job: Whose ranks it meets at the end of each step.
        named: The job that its tags name; ``None``: that one.
        is_stopped: Whether its process is stopped.
        left_s: When its process ended; ``None``: it lives.
        spun_s: How long it has waited in its steps for another rank so far.
    """

    number: int
    wait_s: float = 0.0
    wait_in: TrainingPhase = WAIT
    step_s: float = 0.1
    jitter: float = 0.5
    board: str = "NVIDIA A40"
    samples: int = 32
    job: str = "job"
    named: str | None = None
    is_stopped: bool = False
    left_s: int | None = None
    spun_s: float = 0.0
    steps: int = 0
    events: list[RingEvent] = field(default_factory=list)
    busy: list[tuple[float, float]] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"train-r{self.number}"

    def enter(self, phase: TrainingPhase, at_s: float) -> None:
        self.events.append(RingEvent(RingKind.ENTER, _at(at_s), phase, TrainingMode.TRAIN))

    def end_step(self, at_s: float) -> None:
        self.steps += 1
        self.events.append(RingEvent(RingKind.STEP, _at(at_s), STEP, self.steps))

    def sample(self, second: int) -> GpuSample:
        """What the driver says of its GPU in the second that ends now."""
        samples = []
        for part in range(round(1 / _WINDOW_S)):
            from_s = second - 1 + part * _WINDOW_S
            until_s = from_s + _WINDOW_S
            busy_s = sum(max(0.0, min(until_s, b) - max(from_s, a)) for a, b in self.busy)
            samples.append(BusySample(_at(from_s), _at(until_s), min(1.0, busy_s / _WINDOW_S)))
        self.busy = [span for span in self.busy if span[1] > second]
        device = Device(uuid=f"GPU-{self.number}", index=self.number, name=self.board)
        return GpuSample(device=device, busy=tuple(samples))

    def read(self, second: int, world_size: int) -> RingReading:
        """What its ring says then."""
        facts = RunFacts(
            run=self.key, job=self.named or self.job, pid=42 + self.number, rank=self.number,
            boot_id="boot", started_ns=_BEGAN_NS, gpus=(str(self.number),), framework="loop",
            world_size=world_size,
        )  # fmt: skip
        now_ns = _at(second)
        new = [event for event in self.events if event.at_ns <= now_ns]
        self.events = [event for event in self.events if event.at_ns > now_ns]
        steps = self.steps - sum(event.kind is RingKind.STEP for event in self.events)
        reading = ring_reading(
            facts, key=self.key, read_at_ns=now_ns, events=RingRecords.of(new), steps=steps,
            samples=steps * self.samples,
        )  # fmt: skip
        if self.left_s is None:
            return reading
        return reading._replace(alive=False, ended_ns=_at(self.left_s))


class RanksAtWork:
    """A monitor on the ranks of some jobs.

    Each rank begins a step once it is ready, and all of a job end it together. A rank that has
    done its part before the last one waits; its GPU reads as busy meanwhile if ``spins``.
    """

    drained_every = 1

    def __init__(self, *ranks: Rank, spins: bool = True) -> None:
        self.ranks = list(ranks)
        self.spins, self.second = spins, 0
        self._random = random.Random(38)
        self._monitor = monitor(drained_every=self.drained_every)
        self._now_s: dict[str, float] = {}

    def train(self, seconds: int) -> MonitorState:
        """Go on for so many seconds, and give the state after the last of them."""
        for _ in range(seconds):
            state = self.tick()
        return state

    def tick(self) -> MonitorState:
        self.second += 1
        jobs = {rank.job for rank in self.ranks if rank.left_s is None}
        for job in sorted(jobs):
            ranks = [one for one in self.ranks if one.job == job and one.left_s is None]
            now_s = max(self._now_s.get(job, 0.0), self.second - 1.0)
            while now_s < self.second:
                now_s = self._step(ranks, now_s)
            self._now_s[job] = now_s
        return self._take()

    def leave(self, rank: Rank) -> None:
        """End its process now."""
        rank.left_s, rank.events, rank.busy = self.second, [], []

    def _step(self, ranks: Sequence[Rank], now_s: float) -> float:
        if any(rank.is_stopped for rank in ranks):
            return self._stand_still(ranks, now_s)
        waits_s = [one.wait_s * (1 + one.jitter * self._random.uniform(-1, 1)) for one in ranks]
        done_s = [now_s + wait_s + one.step_s for one, wait_s in zip(ranks, waits_s, strict=True)]
        ends_s = max(done_s)
        for rank, wait_s, own_end_s in zip(ranks, waits_s, done_s, strict=True):
            rank.enter(rank.wait_in, now_s)
            rank.enter(STEP, now_s + wait_s)
            rank.busy.append((now_s + wait_s, ends_s if self.spins else own_end_s))
            rank.spun_s += ends_s - own_end_s
            rank.end_step(ends_s)
        return ends_s

    def _stand_still(self, ranks: Sequence[Rank], now_s: float) -> float:
        for rank in ranks:
            if not rank.is_stopped:
                rank.enter(STEP, now_s)
                rank.busy.append((now_s, self.second))
                rank.spun_s += self.second - now_s
        return float(self.second)

    def _take(self) -> MonitorState:
        frame = Frame(_at(self.second), tuple(rank.sample(self.second) for rank in self.ranks))
        rings = tuple(rank.read(self.second, len(self.ranks)) for rank in self.ranks)
        new = reading(
            frame.taken_at_ns, frame, rings=RingsReading(rings=rings), wall_time_s=self.second
        )
        stopped = {one.key: ProcessState(is_stopped=True) for one in self.ranks if one.is_stopped}
        return self._monitor.ingest(new._replace(host=HostReading(processes=stopped)))


@pytest.fixture(params=[1, 5], ids=["each second", "every 5 s"], autouse=True)
def _drained_every(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How often the samples of all GPUs are read."""
    monkeypatch.setattr(RanksAtWork, "drained_every", request.param)


def _at(seconds: float) -> int:
    return _BEGAN_NS + s(seconds)


EARLY_S, LATE_S = 0.002, 0.08


def job(*, spins: bool = True, **late: Any) -> RanksAtWork:
    """Two ranks that are in time, and one that is late."""
    return RanksAtWork(Rank(0, EARLY_S), Rank(1, EARLY_S), Rank(2, LATE_S, **late), spins=spins)


def bounds_s(one: GpuState) -> tuple[float, float]:
    """For how long it waited for another rank, at least and at most."""
    return one.totals.rank_wait_low_ns / s(1), one.totals.rank_wait_high_ns / s(1)


class TestRanksThatAreInTime:
    @pytest.mark.parametrize("phase", [TrainingPhase.INPUT_WAIT, TrainingPhase.CHECKPOINT])
    def test_wait_for_the_late_one_as_long_as_it_is_late(self, phase: TrainingPhase) -> None:
        work = job(wait_in=phase)
        state = work.train(60)

        for index in (0, 1):
            low_s, high_s = bounds_s(gpu(state, index))
            assert low_s <= work.ranks[index].spun_s
            assert high_s == pytest.approx(work.ranks[index].spun_s, abs=1.5)
            assert low_s == pytest.approx(high_s, abs=0.1)
            assert gpu(state, index).waits_for == RankWait("train-r2", 2, phase.value)
            assert gpu(state, index).verdict.name is VerdictName.STALLED
            totals = gpu(state, index).totals
            assert totals.lost_ns < 0.05 * totals.in_use_ns
            assert totals.busy_ns + totals.idle_total_ns == totals.observed_ns
        late = gpu(state, 2)
        assert (bounds_s(late), late.waits_for) == ((0, 0), None)
        assert late.verdict.name in (VerdictName.STARVED, VerdictName.STALLED)

    def test_may_not_have_waited_if_equal_work_is_not_known(self) -> None:
        longer = Rank(0, EARLY_S, step_s=0.2, samples=0)
        work = RanksAtWork(longer, Rank(1, 0.15, jitter=0.2, samples=0))
        low_s, high_s = bounds_s(gpu(work.train(60)))

        assert low_s == 0
        assert high_s > longer.spun_s

    def test_wait_idly_where_their_gpus_do_not_spin_which_counts_once(self) -> None:
        work = job(spins=False)
        one = gpu(work.train(60))

        assert bounds_s(one)[1] < 1
        assert one.totals.idle_ns[IdleCause.IMBALANCE] / s(1) == pytest.approx(
            work.ranks[0].spun_s, rel=0.1
        )
        assert one.waits_for == RankWait("train-r2", 2, "input_wait")


class TestALateRank:
    @pytest.mark.parametrize("doubt", [{"jitter": 0.0}, {"board": "NVIDIA A10"}], ids=str)
    def test_that_is_always_as_late_or_on_another_board_proves_only_a_range(
        self, doubt: dict[str, Any]
    ) -> None:
        work = job(**doubt)
        one = gpu(work.train(60))

        low_s, high_s = bounds_s(one)
        assert (low_s, one.verdict.name) == (0, VerdictName.PARTIAL)
        assert high_s == pytest.approx(work.ranks[0].spun_s, abs=1.5)

    def test_that_is_done_before_the_others_delays_none(self) -> None:
        work = RanksAtWork(
            Rank(0, EARLY_S, step_s=0.3), Rank(1, EARLY_S, step_s=0.3), Rank(2, LATE_S)
        )
        state = work.train(60)

        assert bounds_s(gpu(state, 0)) == (0, 0)
        assert gpu(state, 0).verdict.name is VerdictName.HEALTHY

    def test_costs_nothing_where_all_are_alike(self) -> None:
        state = RanksAtWork(*(Rank(number, 0.001) for number in range(4))).train(60)

        for one in state.gpus:
            assert bounds_s(one)[1] < 0.01 * one.totals.in_use_ns / s(1)
            assert one.verdict.name is VerdictName.HEALTHY

    def test_of_another_job_or_alone_delays_no_rank(self) -> None:
        here = [Rank(0, LATE_S, job="alone", named="job"), Rank(1, EARLY_S)]
        there = [Rank(2, LATE_S, job="other"), Rank(3, EARLY_S, job="other")]
        state = RanksAtWork(*here, *there).train(60)

        assert (bounds_s(gpu(state, 0)), gpu(state, 0).waits_for) == ((0, 0), None)
        assert gpu(state, 1).verdict.name is VerdictName.HEALTHY
        assert gpu(state, 3).waits_for == RankWait("train-r2", 2, "input_wait")


class TestALongPauseOfOneRank:
    @pytest.mark.parametrize("phase", [TrainingPhase.CHECKPOINT, TrainingPhase.VALIDATION])
    def test_is_what_the_other_may_have_waited_for(self, phase: TrainingPhase) -> None:
        work = RanksAtWork(Rank(0, EARLY_S, jitter=0.0), Rank(1, EARLY_S, jitter=0.0))
        for _ in range(5):
            work.train(8)
            pausing = work.ranks[1] = replace(work.ranks[1], wait_s=3.0, wait_in=phase)
            work.tick()
            pausing.wait_s, pausing.wait_in = EARLY_S, TrainingPhase.INPUT_WAIT
            state = work.train(5)
        one = gpu(state)

        low_s, high_s = bounds_s(one)
        assert low_s <= work.ranks[0].spun_s
        assert high_s == pytest.approx(work.ranks[0].spun_s, abs=0.5)
        assert one.waits_for is not None
        assert (one.waits_for.run, one.waits_for.rank) == ("train-r1", 1)
        assert one.verdict.name is VerdictName.PARTIAL


class TestRanksThatComeAndGo:
    def test_leave_what_was_counted(self) -> None:
        work = job()
        before = bounds_s(gpu(work.train(30)))
        work.leave(work.ranks[2])
        state = work.train(30)
        after = bounds_s(gpu(state))

        assert before[0] <= after[0] <= before[0] + 2
        assert before[1] <= after[1] <= before[1] + 2
        assert gpu(state).waits_for == RankWait("train-r2", 2, "input_wait")

    def test_wait_from_when_they_join(self) -> None:
        work = RanksAtWork(Rank(1, EARLY_S), Rank(2, LATE_S))
        work.train(30)
        work.ranks.append(Rank(0, EARLY_S))
        state = work.train(30)
        joined = next(one for one in state.gpus if one.device.index == 0)

        assert bounds_s(joined)[1] <= work.ranks[2].spun_s + 1
        assert joined.waits_for == RankWait("train-r2", 2, "input_wait")

    def test_keep_the_bounds_in_order(self) -> None:
        work, left = job(), 0
        for second in range(60):
            for one in work.tick().gpus:
                low_s, high_s = bounds_s(one)
                assert 0 <= low_s <= high_s <= one.totals.in_use_busy_ns / s(1)
            if second % 10 == 9:
                work.leave(work.ranks[left])
                left += 1
                work.ranks.append(Rank(left + 2, LATE_S if left % 2 else EARLY_S))


class TestASuspendedRank:
    def test_is_what_the_others_wait_for_until_it_resumes(self) -> None:
        work = RanksAtWork(*(Rank(number, 0.001) for number in range(3)))
        work.train(30)
        work.ranks[2].is_stopped = True
        state = work.train(30)
        low_s, high_s = bounds_s(gpu(state))

        assert 25 < low_s <= high_s < 31
        assert gpu(state).waits_for == RankWait("train-r2", 2, SUSPENDED)
        assert gpu(state).verdict.name is VerdictName.STALLED
        itself = gpu(state, 2)
        assert itself.totals.lost_ns < s(1)
        assert itself.verdict.name is VerdictName.HEALTHY
        assert bounds_s(itself)[1] < 1

        work.ranks[2].is_stopped = False
        resumed = gpu(work.train(30))

        assert bounds_s(resumed)[1] < high_s + 2
        assert resumed.waits_for == RankWait("train-r2", 2, SUSPENDED)


def test_the_cost_grows_with_the_ranks_of_a_job_and_no_faster() -> None:
    def calls(ranks: int) -> int:
        waits_s = [LATE_S if number == 2 else EARLY_S for number in range(ranks)]
        work = RanksAtWork(*(Rank(number, wait_s) for number, wait_s in enumerate(waits_s)))
        work.train(12)
        return count_calls(lambda: work.train(2))

    assert calls(36) < 1.1 * 3 * calls(12)


class TestTheRankThatIsNamed:
    def test_is_none_of_a_job_before(self) -> None:
        work = job()
        work.train(30)
        for rank in work.ranks:
            work.leave(rank)
        work.train(5)
        work.ranks += [Rank(0, EARLY_S, job="new"), Rank(1, EARLY_S, job="new")]

        assert gpu(work.train(30)).waits_for is None

"""Loops whose windows ``IdleBounds`` observes, with the totals that a ledger would keep."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.core.attribution.idle_bounds import IdleBounds
from gpumon.core.attribution.idle_sharing import share_idle
from gpumon.core.attribution.timeline import PhaseTimeline
from gpumon.core.phase import IdleCause, TrainingPhase, cause_of
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords
from gpumon.core.sample import BusySample
from tests.truth.loops.machine import NS_PER_MS, Rank

WAIT, STEP, SYNC, CALLBACKS, OTHER = (
    TrainingPhase.INPUT_WAIT,
    TrainingPhase.TRAIN_STEP,
    TrainingPhase.DEVICE_SYNC,
    TrainingPhase.CALLBACKS,
    TrainingPhase.OTHER,
)
MICRO_BATCHES: Final = 8

Amounts = Counter[IdleCause]


class Totals(NamedTuple):
    """Idle time by cause after some windows, nanoseconds."""

    low_ns: Amounts
    best_ns: Amounts
    high_ns: Amounts


class FollowedLoop:
    """Observes windows, and checks after each that the totals are consistent.

    Attributes:
        idle_ns: Idle time of all windows.
        shared_ns: How ``share_idle`` shares it, window by window.
    """

    def __init__(self) -> None:
        self.timeline, self.bounds = PhaseTimeline(), IdleBounds()
        self.idle_ns = 0
        self.shared_ns: Amounts = Counter()
        self._best_ns: Amounts = Counter()
        self._less_ns: Amounts = Counter()
        self._more_ns: Amounts = Counter()
        self._before = self.totals

    @property
    def totals(self) -> Totals:
        best_ns = self._best_ns
        causes = {*best_ns, *self._less_ns, *self._more_ns}
        return Totals(
            Counter({cause: best_ns[cause] - self._less_ns[cause] for cause in causes}),
            Counter(best_ns),
            Counter({cause: best_ns[cause] + self._more_ns[cause] for cause in causes}),
        )

    def follow(self, samples: Sequence[BusySample], events: Iterable[RingEvent]) -> None:
        """Observe windows in order; each sees the events up to its end."""
        waiting = deque(sorted(events, key=lambda event: event.at_ns))
        for sample in samples:
            new = []
            while waiting and waiting[0].at_ns <= sample.end_ns:
                new.append(waiting.popleft())
            self.observe(sample, new)

    def observe(self, sample: BusySample, events: Iterable[RingEvent] = ()) -> None:
        start_ns, end_ns, _ = sample
        self.timeline.extend(RingRecords.of(events), end_ns)
        idle_ns = sample.idle_ns
        parts = self.timeline.parts(start_ns, end_ns)
        shared = share_idle(idle_ns, parts)
        bounds, narrowed = self.bounds.observe(sample, parts, shared, self.timeline)
        usual_ns = Counter(shared.idle_ns)
        usual_ns[IdleCause.UNKNOWN] += idle_ns - usual_ns.total()
        self.idle_ns += idle_ns
        self.shared_ns.update(usual_ns)
        self._best_ns.update(usual_ns if bounds is None else bounds.best_ns)
        if bounds is not None:
            self._less_ns.update(bounds.less_ns)
            self._more_ns.update(bounds.more_ns)
        if narrowed is not None:
            self._less_ns.subtract(narrowed.low_ns)
            self._more_ns.subtract(narrowed.high_ns)
        self.timeline.forget_before(start_ns)
        self._check()

    def _check(self) -> None:
        low_ns, best_ns, high_ns = now = self.totals
        before, self._before = self._before, now
        assert best_ns.total() == self.idle_ns
        for cause in high_ns:
            assert 0 <= low_ns[cause] <= best_ns[cause] <= high_ns[cause] <= self.idle_ns
            assert low_ns[cause] >= before.low_ns[cause]
            assert best_ns[cause] >= before.best_ns[cause]


def synchronous(
    steps: int, *, wait_ms: float, step_ms: float, tags_steps: bool = True, seed: int = 1
) -> Rank:
    """The host waits for a batch while the device idles, then for the device."""
    rank = Rank(seed, 0.05)
    rank.work(500)
    for _ in range(steps):
        with rank.phase(WAIT):
            rank.work(wait_ms)
        with rank.phase(STEP if tags_steps else None):
            rank.launch(step_ms)
            rank.synchronise()
        rank.step()
    return rank


def asynchronous(rounds: int, *, counts_batches: bool = False, seed: int = 1) -> Rank:
    """The host loads 20 ms a micro-batch while the device works 25 ms; each round ends in a log."""
    rank = Rank(seed, 0.03)
    rank.work(500)
    for _ in range(rounds):
        for batch in range(MICRO_BATCHES):
            with rank.phase(WAIT):
                rank.work(20)
            with rank.phase(STEP):
                rank.work(0.5)
                rank.launch(25)
                if counts_batches or batch == MICRO_BATCHES - 1:
                    rank.step()
        with rank.phase(SYNC):
            rank.synchronise()
        with rank.phase(CALLBACKS):
            rank.work(100)
    return rank


def followed(rank: Rank, grain_ms: float = 167, marks: Iterable[RingEvent] = ()) -> FollowedLoop:
    """That loop, after its driver's windows were observed."""
    loop = FollowedLoop()
    loop.follow(rank.windows(round(grain_ms * NS_PER_MS), 0), [*rank.events, *marks])
    return loop


def true_idle_ns(rank: Rank, grain_ms: float = 167) -> Amounts:
    """How long the device was idle in each phase of the host, in these windows."""
    until_ns = rank.windows(round(grain_ms * NS_PER_MS), 0)[-1].end_ns
    idle_ns: Amounts = Counter()
    for phase, length_ns in rank.idle_ns(0, until_ns).items():
        silent = phase in (TrainingPhase.START_UP, OTHER)
        idle_ns[IdleCause.UNKNOWN if silent else cause_of(phase)] += length_ns
    return idle_ns


def device_done(at_ns: int, step: int) -> RingEvent:
    """A mark: the device finished that step."""
    return RingEvent(RingKind.DEVICE_DONE, at_ns, OTHER, step)

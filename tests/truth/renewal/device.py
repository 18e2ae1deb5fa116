"""What the kinds share: drawn numbers, the queue of a loader, and a timeline."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.truth.workloads.spans import Spans, no_spans, spans_between

Floats = NDArray[np.float64]

MS_PER_SECOND: Final = 1_000.0


class State(IntEnum):
    """What a GPU does."""

    IDLE = 0
    BUSY = 1
    STARVED = 2
    SPINNING = 3
    """Busy only with waiting for its peers."""
    AWAY = 4
    """Idle between two jobs."""


class Work(NamedTuple):
    """One job, or a sequence of short ones, on one GPU; ms from its begin."""

    busy: Spans
    starved: Spans = no_spans()
    spins: Spans = no_spans()
    away: Spans = no_spans()


class Draw:
    """Draws the constants and the noise of a machine; ``gpus``: of a parallel run."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.gpus = int(rng.choice([2, 2, 4, 4, 8]))

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def log_uniform(self, low: float, high: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def integer(self, low: int, high: int) -> int:
        """Log-uniform from ``low``, at least 1, to ``high``, both included."""
        return min(high, int(self.log_uniform(low, high + 1)))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def noise(self, count: int, spread: float) -> Floats:
        """Lognormal factors of mean 1 with ``spread`` as the sigma of their logarithm."""
        return np.asarray(self.rng.lognormal(-0.5 * spread * spread, spread, count))

    def drift(self, count: int, every: float, spread: float) -> Floats:
        """Slowly changing factors around 1: independent at every ``every``, linear between."""
        knots = self.rng.normal(0.0, spread, int(count / every) + 3)
        return np.asarray(np.exp(np.interp(np.arange(count) / every, np.arange(knots.size), knots)))


def how_many(seconds: float, mean_s: float) -> int:
    """Enough rounds of this mean length to fill these seconds."""
    return int(1.2 * seconds / mean_s) + 20


def loader_waits(
    fetches_s: Floats,
    steps_s: Floats,
    workers: int,
    depth: int,
    *,
    slowdown: Floats | None = None,
) -> Floats:
    """The run's wait for each batch, in s; shape (n,).

    Worker ``i % workers`` fetches batch ``i``; batches are consumed in order. A worker fetches
    while fewer than ``workers + depth`` batches are loading or ready.

    Args:
        fetches_s: Time of a worker for each batch; shape (n,).
        steps_s: Time of the run for each; shape (n,).
        workers: At least 1.
        depth: Batches that are ready, in addition to one per worker.
        slowdown: A factor on the fetches begun in each second of the job.
    """
    factors = [1.0] if slowdown is None else slowdown.tolist()
    last, room, now = len(factors) - 1, workers + depth, 0.0
    free = [0.0] * workers
    taken: list[float] = []
    waits: list[float] = []
    for i, (fetch, step) in enumerate(zip(fetches_s.tolist(), steps_s.tolist(), strict=True)):
        begin = free[i % workers]
        if i >= room and taken[i - room] > begin:
            begin = taken[i - room]
        ready = begin + fetch * factors[min(int(begin), last)]
        free[i % workers] = ready
        wait = ready - now if ready > now else 0.0
        waits.append(wait)
        now += wait
        taken.append(now)
        now += step
    return np.asarray(waits)


def in_turn(*parts: tuple[Floats | float, State]) -> Work:
    """Rounds of the same parts: seconds, of shape (n,) or one number, and state of each."""
    columns = np.broadcast_arrays(*(np.asarray(lengths) for lengths, _ in parts))
    lengths_s = np.column_stack(columns).ravel()
    ends_ms = np.rint(np.cumsum(lengths_s) * MS_PER_SECOND).astype(np.int64)
    begins_ms = np.concatenate(([0], ends_ms[:-1]))
    states = np.tile([state for _, state in parts], columns[0].size)

    def spans_in(*wanted: State) -> Spans:
        is_it = np.isin(states, wanted)
        return spans_between(begins_ms[is_it], ends_ms[is_it])

    return Work(
        spans_in(State.BUSY, State.SPINNING),
        spans_in(State.STARVED),
        spans_in(State.SPINNING),
        spans_in(State.AWAY),
    )


def spans_of_seconds(begins_s: Floats, ends_s: Floats) -> Spans:
    """The union of the spans between these, both of shape (n,), in ms."""
    begins_ms, ends_ms = (np.rint(at * MS_PER_SECOND).astype(np.int64) for at in (begins_s, ends_s))
    return spans_between(begins_ms, ends_ms)


def host_gaps(draw: Draw, count: int) -> Floats:
    """Python and kernel launches between two steps: 0.5 to 30 ms."""
    return draw.log_uniform(5e-4, 0.03) * draw.noise(count, 0.2)


def step_times(draw: Draw, seconds: float, mean_s: float) -> Floats:
    """Steps that fill these seconds, in s; shape (n,).

    Batches of one shape vary by 0.05 to 5 %. In one run of four, each is padded to its longest
    sample, and they vary by 5 to 50 %.
    """
    is_padded = draw.chance(0.25)
    spread = draw.log_uniform(0.05, 0.5) if is_padded else draw.log_uniform(5e-4, 0.05)
    return mean_s * draw.noise(how_many(seconds, mean_s), spread)


def looped(draw: Draw, steps_s: Floats, idle_s: Floats, state: State) -> list[Work]:
    """Steps, each after some idle time; both of shape (n,)."""
    return [
        in_turn((idle_s, state), (steps_s, State.BUSY), (host_gaps(draw, steps_s.size), State.IDLE))
    ]


def fed(
    draw: Draw, steps_s: Floats, fetches_s: Floats, workers: int, slowdown: Floats | None = None
) -> list[Work]:
    """A training run behind a loader with a prefetch depth of 0 to 16."""
    depth = draw.integer(1, 17) - 1
    waits_s = loader_waits(fetches_s, steps_s, workers, depth, slowdown=slowdown)
    return looped(draw, steps_s, waits_s, State.STARVED)

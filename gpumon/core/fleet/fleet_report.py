"""The report on many machines as a value. Times are seconds summed over GPUs, energy is joules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause

NO_RUN: Final = ""
"""The run, or user, of time that belongs to none."""
BEYOND_CAP: Final = "_other"
"""The runs, or users, that a daemon had no label for."""
MIN_COVERAGE: Final = 0.95
"""Below this, the report begins with what is missing. Ours: one hour in twenty."""
STANDS_OUT: Final = 0.5
"""Runs that lost at least half as much as the worst of them stand out together. Ours."""
MOST: Final = 0.5
"""Ours: half of the loss."""
_UNKNOWN: Final = IdleCause.UNKNOWN.value
_JOULES_OF_KWH: Final = 3_600_000.0
_SECONDS_OF_HOUR: Final = 3_600.0


class Dimension(NamedTuple):
    """What losses are ranked by.

    Attributes:
        name: As in ``--by``, and the label of the series.
        many: Several of them.
        none: What the time that belongs to none of them is called; ``None``: there is no such.
    """

    name: str
    many: str
    none: str | None


HOSTS: Final = Dimension("host", "hosts", None)
RUNS: Final = Dimension("run", "runs", "no tagged run")
USERS: Final = Dimension("user", "users", "no user")
DIMENSIONS: Final = (RUNS, USERS, HOSTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """A host, run or user, and the time that its GPUs lost: idle while in use.

    Attributes:
        name: Its label; ``NO_RUN``: the time that belongs to none.
        lost_by_cause: Seconds.
        busy_seconds: ``None``: unknown.
        users: Whose run it is; empty: unknown.
        hosts: Where the run was; empty: unknown.
    """

    name: str
    lost_by_cause: Mapping[str, float]
    busy_seconds: float | None = None
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def lost_seconds(self) -> float:
        return sum(self.lost_by_cause.values())

    @property
    def lost_ratio(self) -> float | None:
        """Share of its time in use."""
        return lost_ratio(self.lost_seconds, self.busy_seconds)

    @property
    def main_cause(self) -> str | None:
        return max(self.lost_by_cause, key=self.lost_by_cause.__getitem__, default=None)


class Rest(NamedTuple):
    """All that a ranking does not name.

    Attributes:
        number: How many; ``None``: unknown.
        lost_seconds: What they lost together.
    """

    number: int | None
    lost_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Who lost most, the worst first.

    Attributes:
        rest: Those not among the worst; ``None``: there are none.
        unnamed_lost_seconds: Time that belongs to none; ``None``: there is no such time.
    """

    dimension: Dimension
    worst: tuple[Loser, ...]
    rest: Rest | None = None
    unnamed_lost_seconds: float | None = None


class FewRuns(NamedTuple):
    """The few runs that account for most of what was lost to a cause.

    Attributes:
        runs: The worst first.
        lost_seconds: What they lost to it.
        users: Whose they are; empty: not known of each.
    """

    cause: str
    runs: tuple[str, ...]
    lost_seconds: float
    users: tuple[str, ...]


class Prices(NamedTuple):
    """What a GPU-hour and a kWh cost, in whatever currency; ``None``: unknown."""

    gpu_hour: float | None = None
    kwh: float | None = None


NO_PRICES: Final = Prices()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """Where the GPU time of many machines went.

    Attributes:
        source: The server that was asked.
        started_at: Unix time.
        ended_at: Unix time, by the server's clock.
        tile_seconds: Length of the spans that were added up; ``None``: there are no recording
            rules, and raw counters were read.
        known_tiles: How many spans have figures.
        all_tiles: How many there should be.
        first_tile_at: Unix time of the begin of the first span with figures.
        expected_seconds: What would have been observed without gaps; ``None``: unknown.
        not_in_use_seconds: Idle without a job; ``None``: unknown.
        lost_by_cause: Seconds.
        input_wait_by_reason: Seconds; a part of the idle time.
        energy_by_use: Joules by ``busy``, ``lost`` and ``not_in_use``; empty: unknown.
        unscraped_daemons: How many did not answer a scrape in the span, or in its last day;
            ``None``: unknown, or nothing is missing.
        gpus: How many there are now; ``None``: unknown.
        hosts: How many are up now; ``None``: unknown.
        few_runs: Of the largest known causes, those that few runs account for.
        warnings: What the server says of its answers, such as that they are partial.
        notes: Sentences on what limits the figures.
    """

    source: str
    started_at: float
    ended_at: float
    tile_seconds: float | None = None
    known_tiles: int = 0
    all_tiles: int = 0
    first_tile_at: float | None = None
    observed_seconds: float
    expected_seconds: float | None = None
    busy_seconds: float
    not_in_use_seconds: float | None = None
    lost_by_cause: Mapping[str, float]
    input_wait_by_reason: Mapping[str, float] = field(default_factory=dict)
    energy_by_use: Mapping[str, float] = field(default_factory=dict)
    unscraped_daemons: int | None = None
    gpus: int | None = None
    hosts: int | None = None
    rankings: tuple[Ranking, ...] = ()
    few_runs: tuple[FewRuns, ...] = ()
    prices: Prices = NO_PRICES
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lost_seconds(self) -> float:
        """Idle while in use, start-up included."""
        return sum(self.lost_by_cause.values())

    @property
    def known_causes(self) -> tuple[str, ...]:
        """The known causes of what was lost, the largest first."""
        known = [cause for cause in self.lost_by_cause if cause != _UNKNOWN]
        return tuple(sorted(known, key=self.lost_by_cause.__getitem__, reverse=True))

    @property
    def unknown_seconds(self) -> float:
        """Lost without a known cause."""
        return self.lost_by_cause.get(_UNKNOWN, 0.0)

    @property
    def in_use_seconds(self) -> float:
        return self.busy_seconds + self.lost_seconds

    @property
    def lost_ratio(self) -> float | None:
        """Share of the time in use; ``None``: no GPU was in use."""
        return lost_ratio(self.lost_seconds, self.busy_seconds)

    @property
    def coverage_ratio(self) -> float | None:
        """Share of the expected time that was observed; ``None``: unknown."""
        if not self.expected_seconds:
            return None
        return min(1.0, self.observed_seconds / self.expected_seconds)

    @property
    def has_low_coverage(self) -> bool:
        coverage = self.coverage_ratio
        return coverage is not None and coverage < MIN_COVERAGE


def lost_ratio(lost_seconds: float, busy_seconds: float | None) -> float | None:
    """Share of the time in use that was lost; ``None``: unknown, or nothing was in use."""
    if busy_seconds is None or not busy_seconds + lost_seconds:
        return None
    return lost_seconds / (busy_seconds + lost_seconds)


def cost(amount_seconds: float | None, price_of_hour: float | None) -> float | None:
    """What GPU time costs.

    >>> cost(7_200.0, 2.5), cost(7_200.0, None)
    (5.0, None)
    """
    if amount_seconds is None or price_of_hour is None:
        return None
    return amount_seconds / _SECONDS_OF_HOUR * price_of_hour


def energy_cost(joules: float | None, price_of_kwh: float | None) -> float | None:
    """What energy costs.

    >>> energy_cost(7_200_000.0, 0.25)
    0.5
    """
    if joules is None or price_of_kwh is None:
        return None
    return kilowatt_hours(joules) * price_of_kwh


def kilowatt_hours(joules: float) -> float:
    """Energy as a meter counts it.

    >>> kilowatt_hours(7_200_000.0)
    2.0
    """
    return joules / _JOULES_OF_KWH


def leading(losses: Sequence[float], whole: float, most: int) -> int:
    """How many losses stand out; 0: they are too many, or less than half of the whole.

    Args:
        losses: The largest first, at least the ``most`` + 1 largest of them.
        whole: The sum of all.
        most: More of them are too many.

    >>> leading([50.0, 30.0, 5.0], 100.0, 2), leading([20.0, 9.0], 100.0, 2), leading([9.0], 9.0, 2)
    (2, 0, 1)
    """
    count = sum(loss >= STANDS_OUT * losses[0] for loss in losses)
    return 0 if count > most or sum(losses[:count]) < MOST * whole else count

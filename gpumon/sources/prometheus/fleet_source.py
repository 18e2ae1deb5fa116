"""Reads a ``FleetReport`` from a Prometheus server, by its recording rules or raw counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpumon.core.clock import Clock, nanoseconds
from gpumon.core.fleet.fleet_report import (
    BEYOND_CAP,
    DIMENSIONS,
    HOSTS,
    NO_PRICES,
    NO_RUN,
    RUNS,
    USERS,
    Dimension,
    FewRuns,
    FleetReport,
    Loser,
    Prices,
    Ranking,
    Rest,
    leading,
)
from gpumon.core.wording import in_about, label_text
from gpumon.errors import PrometheusError
from gpumon.sources.prometheus import fleet_queries as promql
from gpumon.sources.prometheus.api import PrometheusApi, Sample
from gpumon.sources.prometheus.fleet_queries import FleetQueries, Quantity, group_label

WORST: Final = 10
_FEW: Final = 5
"""More runs than these are not few."""
_CAUSES_WITH_RUNS: Final = 2
"""So many of the largest causes are searched for few runs that account for them."""
_MAX_SHARED: Final = 3
_SKEW_S: Final = 60.0
_RULES: Final = "prometheus/rules.yml"
_DEFAULT_DAYS: Final = 7
_DAY_S: Final = 86_400.0
_WHY_NO_TABLE: Final[Mapping[Dimension, str]] = {
    HOSTS: "no host is known to have lost time",
    RUNS: "no tagged run lost time: `gpumon run -- python train.py` tags a run",
    USERS: "no user is known to have lost time: `gpumon serve --users` counts by user",
}


def read_fleet_report(
    api: PrometheusApi,
    since_s: float | None,
    clock: Clock,
    *,
    prices: Prices = NO_PRICES,
    dimensions: Sequence[Dimension] = DIMENSIONS,
) -> FleetReport:
    """Ask for the figures of the last ``since_s`` seconds, rounded up to whole tiles.

    Args:
        api: The server.
        since_s: How far to look back; ``None``: 7 days, or one before there are hourly tiles.
        clock: Of this machine, to compare with the server's.
        prices: Of a GPU-hour and a kWh.
        dimensions: What to rank losses by.

    Raises:
        PrometheusError: The server does not answer, or has no figures of gpumon.
    """
    api.ask("vector(1)")  # shows whether it is a Prometheus, and its time
    now_s = clock.wall_time_s()
    at_s = now_s if api.server_time_s is None else api.server_time_s
    report = _Reader(api, at_s, since_s).report(dimensions)
    notes = (*report.notes, *_unpriced_energy(report, prices), *_skew(now_s - at_s))
    return replace(report, prices=prices, warnings=tuple(api.warnings), notes=notes)


def _unpriced_energy(report: FleetReport, prices: Prices) -> list[str]:
    if prices.kwh is None or report.energy_by_use:
        return []
    return [
        f"The energy is unknown, and so is its price: the server has no figures of "
        f"`{promql.ENERGY.counter}`."
    ]


def _skew(ahead_s: float) -> list[str]:
    if abs(ahead_s) < _SKEW_S:
        return []
    side = "ahead of" if ahead_s > 0 else "behind"
    time = in_about(nanoseconds(abs(ahead_s)))
    return [f"The clock of this machine is {time} {side} the server's; times are the server's."]


class _Owners(NamedTuple):
    users: set[str]
    hosts: set[str]


_NO_OWNERS: Final = _Owners(set(), set())


class _Reader:
    """Asks one server for one span."""

    def __init__(self, api: PrometheusApi, at_s: float, since_s: float | None) -> None:
        self._api = api
        self._at_s = at_s
        self._queries = FleetQueries(since_s or _DEFAULT_DAYS * _DAY_S)
        self._may_shorten = since_s is None
        self._notes: list[str] = []

    def report(self, dimensions: Sequence[Dimension]) -> FleetReport:
        observed = self._observed_tiles()
        if not observed and self._may_shorten:
            self._queries = FleetQueries(_DAY_S)
            observed = self._observed_tiles()
            self._notes.append(
                "The server has no hourly figures yet, so this is the last day instead of "
                f"{_DEFAULT_DAYS} days."
            )
        if not observed:
            self._read_raw()
        busy_s, unused_s = self._whole(promql.BUSY), self._whole(promql.NOT_IN_USE)
        lost = self._by("cause", promql.LOST)
        report = FleetReport(
            source=self._api.address,
            started_at=self._at_s - self._queries.span_s,
            ended_at=self._at_s,
            # What was pending when the span began is attributed in it, and so may exceed it.
            observed_seconds=max(
                self._whole(promql.OBSERVED), busy_s + unused_s + sum(lost.values())
            ),
            busy_seconds=busy_s,
            not_in_use_seconds=unused_s,
            lost_by_cause=lost,
            input_wait_by_reason=self._by("reason", promql.INPUT_WAIT),
            energy_by_use=self._by("use", promql.ENERGY),
            gpus=self._count(self._queries.latest(promql.GPUS)),
            hosts=self._count(self._queries.latest(promql.HOSTS_UP)),
        )
        report = self._with_coverage(report, observed)
        if report.has_low_coverage:
            report = replace(report, unscraped_daemons=self._unscraped())
        self._compare_hosts(report)
        rankings = [found for one in dimensions if (found := self._ranking(one))]
        if report.lost_seconds:
            self._explain_missing(dimensions, rankings)
        return replace(
            report,
            rankings=tuple(rankings),
            few_runs=tuple(self._few_runs(report)),
            notes=tuple(self._notes),
        )

    # -- answers -----------------------------------------------------------------

    def _ask(self, query: str) -> list[Sample]:
        return self._api.ask(query, self._at_s)

    def _whole(self, quantity: Quantity, *matchers: str) -> float:
        samples = self._ask(self._queries.by([], quantity, *matchers))
        return sum(sample.value for sample in samples)

    def _by(self, label: str, quantity: Quantity, *matchers: str) -> dict[str, float]:
        """The sums by one label, the largest first, without zeros."""
        return _sums(label, self._ask(self._queries.by([label], quantity, *matchers)))

    def _count(self, query: str) -> int | None:
        samples = self._ask(query)
        return round(samples[0].value) if samples else None

    # -- coverage ----------------------------------------------------------------

    def _observed_tiles(self) -> dict[str, Sample]:
        return self._of_servers(self._ask(self._queries.tiles_of(promql.OBSERVED.record)))

    def _read_raw(self) -> None:
        """Read raw counters from now on.

        Raises:
            PrometheusError: There are none, or they are too many for this span.
        """
        address = self._api.address
        if not self._ask(f"count ({promql.OBSERVED.counter})"):
            raise PrometheusError(
                f"{address} has no figures of gpumon: let it scrape `gpumon serve`, and load "
                f"{_RULES} there"
            )
        if not self._queries.is_short:
            raise PrometheusError(
                f"{address} has no hourly figures of gpumon, which more than a day needs: they "
                f"come about an hour after {_RULES} is loaded; until then, ask for --since 1d"
            )
        self._queries.is_raw = True
        self._notes.append(
            f"The server has no figures of {_RULES}, which come within ten minutes after it is "
            "loaded. So raw counters were read, which lack what a run or a cause lost before its "
            "second scrape."
        )

    def _of_servers(self, samples: Sequence[Sample]) -> dict[str, Sample]:
        """The tiles of each server; of two that scrape the same, those with the larger sum."""
        best: dict[str, Sample] = {}
        for sample in samples:
            labels = {
                name: text
                for name, text in sample.labels.items()
                if name not in (*promql.SERVER_LABELS, "__name__")
            }
            key = ", ".join(f"{name}={text}" for name, text in sorted(labels.items()))
            if key not in best or best[key].total < sample.total:
                best[key] = sample
        return best

    def _with_coverage(self, report: FleetReport, observed: Mapping[str, Sample]) -> FleetReport:
        queries = self._queries
        if queries.is_raw:
            gpus = self._count(queries.known_gpus())
            return replace(report, expected_seconds=gpus * queries.span_s if gpus else None)
        if len(observed) > 1:
            names = label_text("; ".join(name or "no labels" for name in observed), 200)
            self._notes.append(
                f"The figures of {len(observed)} servers were added up ({names}). If they scrape "
                "the same hosts, let only the label `replica` differ."
            )
        # A missing tile counts as expected.
        expected = self._of_servers(self._ask(queries.tiles_of(promql.EXPECTED)))
        means = [tiles.total / len(tiles.points) for tiles in expected.values()]
        first_s = min(tiles.points[0][0] for tiles in observed.values())
        return replace(
            report,
            tile_seconds=queries.tile_s,
            known_tiles=max(len(tiles.points) for tiles in observed.values()),
            all_tiles=queries.tiles,
            first_tile_at=first_s - queries.tile_s,
            expected_seconds=queries.tiles * sum(means) or None,
        )

    def _unscraped(self) -> int | None:
        """How many daemons did not answer a scrape; ``None``: unknown."""
        try:
            return self._count(self._queries.unscraped())
        except PrometheusError:  # more samples than the server reads for one query
            return None

    def _compare_hosts(self, report: FleetReport) -> None:
        for sample in self._ask(self._queries.shared_hosts(_MAX_SHARED)):
            host = label_text(sample.labels.get("host", ""), 60)
            self._notes.append(
                f"The host {host} has {sample.value:.0f} daemons, whose instances differ only in "
                "their ports. Its figures are of all of them."
            )
        hosts = self._count(self._queries.count_of("host", promql.HOSTS_OBSERVED))
        if hosts is not None and report.hosts is not None and hosts > report.hosts:
            self._notes.append(
                f"{hosts:,} hosts have figures, {report.hosts:,} are there now. A host that was "
                "renamed has both of its names."
            )

    def _explain_missing(
        self, dimensions: Sequence[Dimension], rankings: Sequence[Ranking]
    ) -> None:
        found = [one.dimension for one in rankings]
        self._notes += [
            f"There is no table of {one.many}, because {_WHY_NO_TABLE[one]}."
            for one in dimensions
            if one not in found
        ]

    # -- who lost ----------------------------------------------------------------

    def _ranking(self, dimension: Dimension) -> Ranking | None:
        queries, label, lost = self._queries, group_label(dimension), promql.LOST_OF[dimension]
        all_named = queries.named(dimension)
        worst = _sums(label, self._ask(queries.worst(WORST, label, lost, all_named)))
        if not worst:
            return None
        unnamed: Mapping[str, float] = {}
        if dimension is not HOSTS:
            unnamed = self._by(label, lost, queries.unnamed(dimension))
        losers = self._losers(dimension, [*worst])
        count = self._count(queries.count_of(label, lost, all_named)) or 0
        others_s = self._whole(lost, all_named) - sum(one.lost_seconds for one in losers)
        beyond_cap_s = unnamed.get(BEYOND_CAP, 0.0)
        rest = Rest(
            None if beyond_cap_s else count - len(losers), max(0.0, others_s) + beyond_cap_s
        )
        return Ranking(
            dimension=dimension,
            worst=losers,
            rest=rest if count > len(losers) or beyond_cap_s else None,
            unnamed_lost_seconds=unnamed.get(NO_RUN),
        )

    def _losers(self, dimension: Dimension, names: Sequence[str]) -> tuple[Loser, ...]:
        label, these = group_label(dimension), self._queries.named(dimension, names)
        causes: dict[str, dict[str, float]] = {name: {} for name in names}
        query = self._queries.by([label, "cause"], promql.LOST_OF[dimension], these)
        for sample in sorted(self._ask(query), key=lambda sample: -sample.value):
            name = sample.labels.get(label, "")
            if sample.value and name in causes:
                causes[name][sample.labels.get("cause", "")] = sample.value
        busy = self._by(label, promql.BUSY_OF[dimension], these)
        owners = self._owners(names) if dimension is RUNS else {}
        return tuple(
            Loser(
                name=name,
                lost_by_cause=causes[name],
                busy_seconds=busy.get(name, 0.0) if busy else None,
                users=tuple(sorted(owners.get(name, _NO_OWNERS).users)),
                hosts=tuple(sorted(owners.get(name, _NO_OWNERS).hosts)),
            )
            for name in names
        )

    def _few_runs(self, report: FleetReport) -> Iterator[FewRuns]:
        label, lost, all_named = group_label(RUNS), promql.LOST_OF[RUNS], self._queries.named(RUNS)
        for cause in report.known_causes[:_CAUSES_WITH_RUNS]:
            of_cause = promql.equal_to("cause", cause)
            query = self._queries.worst(_FEW + 1, label, lost, all_named, of_cause)
            worst = _sums(label, self._ask(query))
            losses = [*worst.values()]
            count = leading(losses, report.lost_by_cause[cause], _FEW) if losses else 0
            if count:
                runs = tuple(worst)[:count]
                owners = self._owners(runs)
                users = [owners.get(run, _NO_OWNERS).users for run in runs]
                all_users = sorted(set().union(*users)) if all(users) else []
                yield FewRuns(cause, runs, sum(losses[:count]), tuple(all_users))

    def _owners(self, runs: Sequence[str]) -> dict[str, _Owners]:
        """Users and hosts of runs; empty where the server cannot answer."""
        try:
            samples = self._ask(self._queries.owners(runs))
        except PrometheusError as error:
            note = f"Users and hosts of runs are unknown: {error}."
            self._notes += [note] if note not in self._notes else []
            return {}
        owners: dict[str, _Owners] = {}
        for sample in samples:
            run = promql.without_rank(sample.labels.get("run", ""))
            found = owners.setdefault(run, _Owners(set(), set()))
            found.users.update(filter(None, [sample.labels.get("user")]))
            found.hosts.add(promql.host_of(sample.labels.get("instance", "")))
        return owners


def _sums(label: str, samples: Sequence[Sample]) -> dict[str, float]:
    """Values by one label, the largest first, without zeros."""
    sums = {sample.labels.get(label, ""): sample.value for sample in samples if sample.value}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))

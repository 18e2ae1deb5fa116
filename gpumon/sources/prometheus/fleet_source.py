"""Reads a ``FleetReport`` from a Prometheus server, which adds up; only sums are transferred.

``prometheus/rules.yml`` records the seconds of each five minutes, and of each hour: *tiles*, which
do not overlap, so ``sum_over_time`` adds them up. A missing tile is missing coverage, never zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
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
from gpumon.sources.prometheus.api import PrometheusApi, Sample

WORST: Final = 10
LONGEST_OF_SHORT_TILES_S: Final = 86_400.0
"""Up to a day, tiles of five minutes (288) are added up; beyond, of an hour (168 a week)."""
_TILES_S: Final = {"5m": 300.0, "1h": 3_600.0}
_SKEW_S: Final = 60.0
_FEW: Final = 5
_CAUSES_WITH_RUNS: Final = 2
"""So many of the largest causes are searched for few runs that account for them."""
_SERVER_LABELS: Final = ("replica", "prometheus_replica")
"""Labels that differ between two servers that scrape the same targets."""
_PORT: Final = re.compile(r":[0-9]+$")
_RULES: Final = "prometheus/rules.yml"


class _Quantity(NamedTuple):
    """What is added up: by a recording rule, and by the counter that it is made from."""

    record: str
    counter: str
    matchers: str = ""


_IN_USE: Final = 'cause!="not_in_use"'
_IDLE: Final = "gpumon_gpu_idle_seconds_total"
_OBSERVED: Final = _Quantity("gpumon:gpu_observed_seconds", "gpumon_gpu_observed_seconds_total")
_BUSY: Final = _Quantity("gpumon:gpu_busy_seconds", "gpumon_gpu_busy_seconds_total")
_UNUSED: Final = _Quantity("gpumon:gpu_not_in_use_seconds", _IDLE, 'cause="not_in_use"')
_LOST: Final = _Quantity("cause:gpumon_gpu_lost_seconds", _IDLE, _IN_USE)
_ENERGY: Final = _Quantity("use:gpumon_gpu_use_energy_joules", "gpumon_gpu_use_energy_joules_total")
_REASONS: Final = _Quantity(
    "host_reason:gpumon_gpu_input_wait_seconds", "gpumon_gpu_input_wait_seconds_total"
)
_LOST_OF: Final[Mapping[Dimension, _Quantity]] = {
    HOSTS: _Quantity("host_cause:gpumon_gpu_lost_seconds", _IDLE, _IN_USE),
    RUNS: _Quantity(
        "run_cause:gpumon_training_gpu_lost_seconds",
        "gpumon_training_gpu_idle_seconds_total",
        _IN_USE,
    ),
    USERS: _Quantity(
        "user_cause:gpumon_user_gpu_lost_seconds", "gpumon_user_gpu_idle_seconds_total", _IN_USE
    ),
}
_BUSY_OF: Final[Mapping[Dimension, _Quantity]] = {
    HOSTS: _Quantity("host:gpumon_gpu_busy_seconds", "gpumon_gpu_busy_seconds_total"),
    RUNS: _Quantity(
        "run:gpumon_training_gpu_busy_seconds", "gpumon_training_gpu_busy_seconds_total"
    ),
    USERS: _Quantity("user:gpumon_user_gpu_busy_seconds", "gpumon_user_gpu_busy_seconds_total"),
}


def read_fleet_report(
    api: PrometheusApi,
    since_s: float,
    clock: Clock,
    *,
    prices: Prices = NO_PRICES,
    dimensions: Sequence[Dimension] = DIMENSIONS,
) -> FleetReport:
    """Ask for the figures of the last ``since_s`` seconds, rounded up to whole tiles.

    Args:
        api: The server.
        since_s: How far to look back.
        clock: Of this machine, to compare with the server's.
        prices: Of a GPU-hour and a kWh.
        dimensions: What to rank losses by.

    Raises:
        PrometheusError: The server does not answer, or has no figures of gpumon.
    """
    api.ask("vector(1)")  # says whether it is a Prometheus, and its time
    now_s = clock.wall_time_s()
    at_s = now_s if api.server_time_s is None else api.server_time_s
    report = _Reader(api, at_s, since_s).report(dimensions)
    notes = [*report.notes, *_skew(now_s - at_s)]
    notes += [f"The server warns: {warning}." for warning in api.warnings]
    return replace(report, prices=prices, notes=tuple(notes))


def _skew(ahead_s: float) -> list[str]:
    if abs(ahead_s) < _SKEW_S:
        return []
    side = "ahead of" if ahead_s > 0 else "behind"
    time = in_about(nanoseconds(abs(ahead_s)))
    return [f"The clock of this machine is {time} {side} the server's; times are the server's."]


class _Reader:
    """Asks one server for one span."""

    def __init__(self, api: PrometheusApi, at_s: float, since_s: float) -> None:
        self._api = api
        self._at_s = at_s
        self._tile = "5m" if since_s <= LONGEST_OF_SHORT_TILES_S else "1h"
        self._tile_s = _TILES_S[self._tile]
        self._tiles = ceil(since_s / self._tile_s)
        self._span_s = self._tiles * self._tile_s
        # A tile at each end would be one too many.
        self._window = f"{round(1_000 * self._span_s) - 1}ms"
        self._is_raw = False
        self._notes: list[str] = []

    def report(self, dimensions: Sequence[Dimension]) -> FleetReport:
        observed = self._of_servers(self._ask(self._series(_OBSERVED.record)))
        if not observed:
            self._check_raw()
        lost = self._by("cause", _LOST)
        report = FleetReport(
            source=self._api.address,
            started_at=self._at_s - self._span_s,
            ended_at=self._at_s,
            tile_seconds=None if self._is_raw else self._tile_s,
            observed_seconds=self._whole(_OBSERVED),
            expected_seconds=None,
            busy_seconds=self._whole(_BUSY),
            not_in_use_seconds=self._whole(_UNUSED),
            lost_by_cause=lost,
            input_wait_by_reason=self._by("reason", _REASONS),
            energy_by_use=self._by("use", _ENERGY),
        )
        report = self._with_coverage(report, observed)
        rankings = [found for one in dimensions if (found := self._ranking(one))]
        return replace(
            report,
            rankings=tuple(rankings),
            few_runs=tuple(self._few_runs(report)),
            notes=tuple(self._notes),
        )

    # -- expressions -------------------------------------------------------------

    def _series(self, record: str, matchers: str = "", kind: str = "increase") -> str:
        """All tiles of a rule within the span."""
        return f"{record}:{kind}{self._tile}{{{matchers}}}[{self._window}]"

    def _sums(self, quantity: _Quantity, matchers: str = "") -> str:
        """The sum of each series over the span, once for servers that scrape the same."""
        without = f"max without ({', '.join(_SERVER_LABELS)})"
        if not self._is_raw:
            return f"{without} (sum_over_time({self._series(quantity.record, matchers)}))"
        both = ",".join(filter(None, (quantity.matchers, matchers)))
        grown = f"increase({quantity.counter}{{{both}}}[{self._window}])"
        host = f'label_replace({grown}, "host", "$1", "instance", "(.+?)(:[0-9]+)?")'
        return f"{without} ({host})"

    def _named(self, dimension: Dimension, names: Sequence[str]) -> str:
        """A matcher of these names; none: of all that have one."""
        if dimension is HOSTS:
            if not names:
                return ""
            label, port = ("instance", "(:[0-9]+)?") if self._is_raw else ("host", "")
            return f'{label}=~{_quoted(names)[:-1]}{port}"'
        return (
            f"{dimension.name}=~{_quoted(names)}"
            if names
            else (f'{dimension.name}!~"|{BEYOND_CAP}"')
        )

    # -- answers -----------------------------------------------------------------

    def _ask(self, query: str) -> list[Sample]:
        return self._api.ask(query, self._at_s)

    def _whole(self, quantity: _Quantity, matchers: str = "") -> float:
        return sum(sample.value for sample in self._ask(f"sum ({self._sums(quantity, matchers)})"))

    def _by(self, label: str, quantity: _Quantity, matchers: str = "") -> dict[str, float]:
        """The sums by one label, the largest first, without zeros."""
        samples = self._ask(f"sum by ({label}) ({self._sums(quantity, matchers)})")
        sums = {sample.labels.get(label, ""): sample.value for sample in samples if sample.value}
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    # -- coverage ----------------------------------------------------------------

    def _check_raw(self) -> None:
        """Read raw counters from now on.

        Raises:
            PrometheusError: There are none, or they are too many for this span.
        """
        address = self._api.address
        if not self._ask(f"count({_OBSERVED.counter})"):
            raise PrometheusError(
                f"{address} has no figures of gpumon: let it scrape `gpumon serve`, and load "
                f"{_RULES} there"
            )
        if self._tile == "5m":
            self._is_raw = True
            self._notes.append(
                f"The server has no rules of {_RULES}, so raw counters were read: a run or cause "
                "counts from its second scrape on, and there is no coverage by time."
            )
            return
        short = f"count_over_time({_OBSERVED.record}:increase5m[1d])"
        if self._ask(short):
            raise PrometheusError(
                f"the rules of {_RULES} have recorded no full hour at {address} yet: ask for less, "
                "with --since 1d"
            )
        raise PrometheusError(
            f"{address} has no rules of gpumon, which more than a day needs: load {_RULES} there, "
            "or ask for less, with --since 1d"
        )

    def _of_servers(self, samples: Sequence[Sample]) -> dict[str, Sample]:
        """The series of each server; of two that scrape the same, that with the larger sum."""
        best: dict[str, Sample] = {}
        for sample in samples:
            labels = {
                name: text
                for name, text in sample.labels.items()
                if name not in (*_SERVER_LABELS, "__name__")
            }
            key = ", ".join(f"{name}={text}" for name, text in sorted(labels.items()))
            if key not in best or _sum(best[key]) < _sum(sample):
                best[key] = sample
        return best

    def _with_coverage(self, report: FleetReport, observed: Mapping[str, Sample]) -> FleetReport:
        now = {
            what: self._ask(f"sum (max without ({', '.join(_SERVER_LABELS)}) ({expr}))")
            for what, expr in (
                ("gpus", self._latest("gpumon:gpus", "count(gpumon_gpu_info)")),
                ("hosts", self._latest("gpumon:hosts", "count(gpumon_build_info)")),
            )
        }
        gpus, hosts = (round(found[0].value) if found else None for found in now.values())
        if self._is_raw:
            known = self._ask(
                f"count(count by (uuid) (last_over_time({_OBSERVED.counter}[{self._window}])))"
            )
            expected = sum(sample.value for sample in known) * self._span_s
            return replace(report, expected_seconds=expected or None, gpus=gpus, hosts=hosts)
        means = self._of_servers(self._ask(self._series("gpumon:gpu_expected_seconds")))
        expected = sum(_sum(one) / len(one.points) for one in means.values()) * self._tiles
        if len(observed) > 1:
            names = label_text("; ".join(observed), 200)
            self._notes.append(
                f"The figures of {len(observed)} servers were added up ({names}). If they scrape "
                "the same hosts, let them differ by the label `replica` only."
            )
        return replace(
            report,
            expected_seconds=expected or None,
            known_tiles=min(self._tiles, max(len(one.points) for one in observed.values())),
            all_tiles=self._tiles,
            first_tile_at=min(one.points[0][0] for one in observed.values()),
            gpus=gpus,
            hosts=hosts,
        )

    def _latest(self, record: str, raw: str) -> str:
        if self._is_raw:
            return raw
        return f"last_over_time({record}:count{self._tile}[{round(2 * self._tile_s)}s])"

    # -- who lost ----------------------------------------------------------------

    def _ranking(self, dimension: Dimension) -> Ranking | None:
        lost, label = _LOST_OF[dimension], dimension.name
        sums = self._sums(lost, self._named(dimension, ()))
        worst = self._ask(f"topk({WORST}, sum by ({label}) ({sums}))")
        worst = [sample for sample in worst if sample.value]
        names = [
            sample.labels.get(label, "") for sample in sorted(worst, key=lambda one: -one.value)
        ]
        unnamed = {} if dimension is HOSTS else self._by(label, lost, f'{label}=~"|{BEYOND_CAP}"')
        if not names and not unnamed:
            return None
        losers = self._losers(dimension, names) if names else ()
        return Ranking(
            dimension=dimension,
            worst=losers,
            rest=self._rest(dimension, losers, unnamed.get(BEYOND_CAP, 0.0)),
            unnamed_lost_seconds=unnamed.get(NO_RUN),
        )

    def _losers(self, dimension: Dimension, names: Sequence[str]) -> tuple[Loser, ...]:
        label, these = dimension.name, self._named(dimension, names)
        causes: dict[str, dict[str, float]] = {name: {} for name in names}
        for sample in self._ask(
            f"sum by ({label}, cause) ({self._sums(_LOST_OF[dimension], these)})"
        ):
            if sample.value and sample.labels.get(label) in causes:
                causes[sample.labels[label]][sample.labels.get("cause", "")] = sample.value
        busy = self._by(label, _BUSY_OF[dimension], these)
        owners = self._owners(names) if dimension is RUNS else {}
        return tuple(
            Loser(
                name=name,
                lost_by_cause=dict(sorted(causes[name].items(), key=lambda item: -item[1])),
                busy_seconds=busy.get(name, 0.0),
                users=tuple(sorted(owners.get(name, _UNKNOWN_OWNER).users)),
                hosts=tuple(sorted(owners.get(name, _UNKNOWN_OWNER).hosts)),
            )
            for name in names
        )

    def _rest(
        self, dimension: Dimension, worst: Sequence[Loser], beyond_cap_s: float
    ) -> Rest | None:
        sums = self._sums(_LOST_OF[dimension], self._named(dimension, ()))
        whole_s = sum(sample.value for sample in self._ask(f"sum ({sums})"))
        (found,) = self._ask(f"count (sum by ({dimension.name}) ({sums}) > 0)") or (None,)
        count = (0 if found is None else round(found.value)) - len(worst)
        lost_s = max(0.0, whole_s - sum(one.lost_seconds for one in worst)) + beyond_cap_s
        if count <= 0 and not beyond_cap_s:
            return None
        return Rest(None if beyond_cap_s else count, lost_s)

    def _few_runs(self, report: FleetReport) -> Iterator[FewRuns]:
        for cause in report.known_causes[:_CAUSES_WITH_RUNS]:
            sums = self._sums(_LOST_OF[RUNS], f'{self._named(RUNS, ())},cause="{cause}"')
            worst = self._ask(f"topk({_FEW + 1}, sum by (run) ({sums}))")
            worst = sorted(worst, key=lambda sample: -sample.value)
            losses = [sample.value for sample in worst]
            count = leading(losses, report.lost_by_cause[cause], _FEW) if any(losses) else 0
            if not count:
                continue
            runs = tuple(sample.labels.get("run", "") for sample in worst[:count])
            owners = [self._owners(runs).get(run, _UNKNOWN_OWNER) for run in runs]
            users = {user for owner in owners for user in owner.users}
            is_known = all(owner.users for owner in owners)
            yield FewRuns(
                cause, runs, sum(losses[:count]), tuple(sorted(users)) if is_known else ()
            )

    def _owners(self, runs: Sequence[str]) -> dict[str, _Owner]:
        """Whose runs these are and where they were; empty where the server cannot answer."""
        info = f"gpumon_gpu_job_info{{{self._named(RUNS, runs)}}}"
        query = f"count by (run, user, instance) (last_over_time({info}[{self._window}]))"
        try:
            samples = self._ask(query)
        except PrometheusError as error:
            self._notes.append(f"Users and hosts of runs are unknown: {error}.")
            return {}
        owners: dict[str, _Owner] = {}
        for sample in samples:
            found = owners.setdefault(sample.labels.get("run", ""), _Owner(set(), set()))
            found.users.update(filter(None, [sample.labels.get("user")]))
            found.hosts.add(_PORT.sub("", sample.labels.get("instance", "")))
        return owners


class _Owner(NamedTuple):
    users: set[str]
    hosts: set[str]


_UNKNOWN_OWNER: Final = _Owner(set(), set())


def _sum(sample: Sample) -> float:
    return sum(value for _, value in sample.points)


def _quoted(names: Sequence[str]) -> str:
    """A PromQL string with a regular expression of exactly these names."""
    return json.dumps("|".join(map(re.escape, names)), ensure_ascii=False)

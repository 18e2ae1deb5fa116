"""PromQL for a report on many machines: the server adds up, so that only sums are transferred.

``prometheus/rules.yml`` records the seconds of each five minutes, and of each hour: *tiles*, which
do not overlap, so ``sum_over_time`` adds them up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

from gpumon.core.fleet.fleet_report import BEYOND_CAP, HOSTS, RUNS, USERS, Dimension

LONGEST_OF_SHORT_TILES_S: Final = 86_400.0
"""Up to a day, tiles of five minutes (288) are added up; beyond, of an hour (168 a week)."""
_SHORT, _LONG = "5m", "1h"
_TILES_S: Final[Mapping[str, float]] = {_SHORT: 300.0, _LONG: 3_600.0}
SERVER_LABELS: Final = ("replica", "prometheus_replica")
"""Labels that differ between two servers that scrape the same targets."""
_ONCE: Final = f"max without ({', '.join(SERVER_LABELS)})"
_RANK: Final = "-r[0-9]+"
_PORT: Final = "(?::[0-9]+)?"
_INSTANCE: Final = rf"\[(.+)\]{_PORT}|([^:]+){_PORT}|(.+)"
"""As in prometheus/rules.yml: a host is the instance without its port."""


class Quantity(NamedTuple):
    """Seconds or joules that are added up.

    Attributes:
        record: Name of its tiles, without what says how long they are.
        counter: What they are made from.
        matchers: The label sets of the counter that are part of it.
    """

    record: str
    counter: str
    matchers: str = ""


_IDLE: Final = "gpumon_gpu_idle_seconds_total"
_IN_USE: Final = 'cause!="not_in_use"'
OBSERVED: Final = Quantity("gpumon:gpu_observed_seconds", "gpumon_gpu_observed_seconds_total")
BUSY: Final = Quantity("gpumon:gpu_busy_seconds", "gpumon_gpu_busy_seconds_total")
NOT_IN_USE: Final = Quantity("gpumon:gpu_not_in_use_seconds", _IDLE, 'cause="not_in_use"')
LOST: Final = Quantity("cause:gpumon_gpu_lost_seconds", _IDLE, _IN_USE)
ENERGY: Final = Quantity("use:gpumon_gpu_use_energy_joules", "gpumon_gpu_use_energy_joules_total")
INPUT_WAIT: Final = Quantity(
    "host_reason:gpumon_gpu_input_wait_seconds", "gpumon_gpu_input_wait_seconds_total"
)
HOSTS_OBSERVED: Final = Quantity(
    "host:gpumon_gpu_observed_seconds", "gpumon_gpu_observed_seconds_total"
)
LOST_OF: Final[Mapping[Dimension, Quantity]] = {
    HOSTS: Quantity("host_cause:gpumon_gpu_lost_seconds", _IDLE, _IN_USE),
    RUNS: Quantity(
        "run_cause:gpumon_training_gpu_lost_seconds",
        "gpumon_training_gpu_idle_seconds_total",
        _IN_USE,
    ),
    USERS: Quantity(
        "user_cause:gpumon_user_gpu_lost_seconds", "gpumon_user_gpu_idle_seconds_total", _IN_USE
    ),
}
BUSY_OF: Final[Mapping[Dimension, Quantity]] = {
    HOSTS: Quantity("host:gpumon_gpu_busy_seconds", "gpumon_gpu_busy_seconds_total"),
    RUNS: Quantity(
        "run:gpumon_training_gpu_busy_seconds", "gpumon_training_gpu_busy_seconds_total"
    ),
    USERS: Quantity("user:gpumon_user_gpu_busy_seconds", "gpumon_user_gpu_busy_seconds_total"),
}
EXPECTED: Final = "gpumon:gpu_expected_seconds"
GPUS: Final = Quantity("gpumon:gpus", "gpumon_gpu_observed_seconds_total")
HOSTS_UP: Final = Quantity("gpumon:hosts", "gpumon_build_info")
_OF_GPU: Final = "job, instance, uuid"
"""A uuid alone is not enough: simulated GPUs of all machines have the same."""
_GROUP_LABEL: Final[Mapping[Dimension, str]] = {HOSTS: "host", RUNS: "of", USERS: "user"}


class FleetQueries:
    """The queries of one span.

    Attributes:
        tiles: How many the span has.
        is_raw: Whether counters are read instead of tiles.
    """

    def __init__(self, since_s: float) -> None:
        self._tile = _SHORT if since_s <= LONGEST_OF_SHORT_TILES_S else _LONG
        self.tiles = ceil(since_s / self.tile_s)
        self.is_raw = False

    @property
    def tile_s(self) -> float:
        """Length of a tile, seconds."""
        return _TILES_S[self._tile]

    @property
    def span_s(self) -> float:
        """Length of the span, seconds."""
        return self.tiles * self.tile_s

    @property
    def is_short(self) -> bool:
        """Whether its tiles are the short ones."""
        return self._tile == _SHORT

    @property
    def _window(self) -> str:
        # With a tile at each end, there would be one too many.
        return f"{round(1_000 * self.span_s) - 1}ms"

    def tiles_of(self, record: str) -> str:
        """Each tile with its time."""
        return f"{record}:increase{self._tile}[{self._window}]"

    def by(self, labels: Sequence[str], quantity: Quantity, *matchers: str) -> str:
        """Sums over the span by labels; servers that scrape the same count once.

        Runs have the label ``of``: their name without a rank.
        """
        by = f" by ({', '.join(labels)})" if labels else ""
        return f"sum{by} ({_ONCE} ({self._sums(quantity, matchers)}))"

    def worst(self, count: int, label: str, quantity: Quantity, *matchers: str) -> str:
        """The largest sums."""
        return f"topk({count}, {self.by([label], quantity, *matchers)})"

    def count_of(self, label: str, quantity: Quantity, *matchers: str) -> str:
        """How many have a sum above 0."""
        return f"count ({self.by([label], quantity, *matchers)} > 0)"

    def latest(self, quantity: Quantity) -> str:
        """How many there are at the end of the span."""
        if self.is_raw:
            by = "host" if quantity is HOSTS_UP else _OF_GPU
            return f"count (count by ({by}) ({_with_host(quantity.counter)}))"
        window = f"{round(2 * self.tile_s)}s"
        return f"sum ({_ONCE} (last_over_time({quantity.record}:count{self._tile}[{window}])))"

    def known_gpus(self) -> str:
        """How many GPUs were seen in the span, from raw counters."""
        seen = f"last_over_time({OBSERVED.counter}[{self._window}])"
        return f"count (count by ({_OF_GPU}) ({seen}))"

    def unscraped(self) -> str:
        """How many daemons did not answer a scrape, in a day at most."""
        span_s = min(self.span_s, LONGEST_OF_SHORT_TILES_S)
        window = f"{round(span_s)}s"
        failed = f"min_over_time(up[{window}]) == 0"
        ours = f"last_over_time({HOSTS_UP.counter}[{window}])"
        return f"count (count by (job, instance) ({failed} and on (job, instance) {ours}))"

    def shared_hosts(self, count: int) -> str:
        """Hosts with several daemons now, and how many."""
        daemons = f"count by (instance) ({HOSTS_UP.counter})"
        return f"topk({count}, count by (host) ({_with_host(daemons)}) > 1)"

    def owners(self, runs: Sequence[str]) -> str:
        """Users and instances of runs."""
        info = f"gpumon_gpu_job_info{{{self.named(RUNS, runs)}}}"
        return f"count by (run, user, instance) (last_over_time({info}[{self._window}]))"

    def named(self, dimension: Dimension, names: Sequence[str] = ()) -> str:
        """A matcher of these names; without names, of all that have one."""
        if not names:
            return "" if dimension is HOSTS else f'{dimension.name}!~"|{BEYOND_CAP}"'
        pattern = f"({'|'.join(map(re.escape, names))})"
        label = dimension.name
        if dimension is HOSTS and self.is_raw:
            label, pattern = "instance", rf"\[?{pattern}\]?{_PORT}"
        elif dimension is RUNS:
            pattern = f"{pattern}({_RANK})?"
        return f"{label}=~{_quoted(pattern)}"

    def unnamed(self, dimension: Dimension) -> str:
        """A matcher of the time that belongs to none, and of that beyond a daemon's cap."""
        return f'{dimension.name}=~"|{BEYOND_CAP}"'

    def _sums(self, quantity: Quantity, matchers: Sequence[str]) -> str:
        if self.is_raw:
            labels = ",".join(filter(None, (quantity.matchers, *matchers)))
            sums = f"increase({quantity.counter}{{{labels}}}[{self._window}])"
            sums = _with_host(sums)
        else:
            labels = ",".join(filter(None, matchers))
            tiles = f"{quantity.record}:increase{self._tile}{{{labels}}}[{self._window}]"
            sums = f"sum_over_time({tiles})"
        if quantity in (LOST_OF[RUNS], BUSY_OF[RUNS]):
            sums = _relabelled(sums, "of", "$1", "run", "(.*)")
            sums = _relabelled(sums, "of", "$1", "run", f"(.+){_RANK}")
        return sums


def group_label(dimension: Dimension) -> str:
    """The label to group sums by."""
    return _GROUP_LABEL[dimension]


def without_rank(run: str) -> str:
    """The name of a run, which its ranks share.

    >>> without_rank("bert-r12"), without_rank("bert")
    ('bert', 'bert')
    """
    return re.sub(f"{_RANK}$", "", run)


def host_of(instance: str) -> str:
    """The host of an instance.

    >>> host_of("node-1:19835"), host_of("[::1]:19835"), host_of("node-1"), host_of("::1")
    ('node-1', '::1', 'node-1', '::1')
    """
    found = re.fullmatch(_INSTANCE, instance)
    return instance if found is None else "".join(filter(None, found.groups()))


def equal_to(label: str, text: str) -> str:
    """A matcher of a text."""
    return f"{label}={_quoted(text)}"


def _quoted(text: str) -> str:
    """A string in PromQL, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _with_host(expression: str) -> str:
    return _relabelled(expression, "host", "$1$2$3", "instance", _INSTANCE)


def _relabelled(expression: str, label: str, text: str, source: str, pattern: str) -> str:
    return f'label_replace({expression}, "{label}", "{text}", "{source}", {_quoted(pattern)})'

"""Prometheus' answer to a range query: dcgm-exporter, nvidia_gpu_exporter and others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from gpumon.core.clock import NS_PER_S
from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.json_documents import Document, JsonDocuments
from gpumon.sources.logs.log_sample import LogOptions, line_like
from gpumon.sources.logs.prometheus_metrics import is_counter, metric_of, owner_of
from gpumon.sources.logs.stamps.log_clock import UTC_CLOCK
from gpumon.sources.logs.table.cell_values import OVER_FULL, GuessedUnit, Refusal, ratio_of
from gpumon.sources.logs.table.column_names import Column, Heading
from gpumon.sources.logs.table.headings import columns_by_meaning

_FINITE: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d{1,3})?", re.ASCII | re.I)
_END_OF_TIME_S: Final = 9e9
"""The year 2255: up to there nanoseconds fit into 64 bits."""
_ADVICE: Final = (
    "ask for a range, such as `curl 'http://HOST:9090/api/v1/query_range?query="
    "DCGM_FI_DEV_GPU_UTIL&start=...&end=...&step=1'`"
)
_NAMES_IN_NOTE: Final = 6
_WAY_OUT: Final = "ask for one unit: multiply what is a share by 100"


class PrometheusLog(GpuLog):
    """Answers one after another: the values of each GPU in order of time, GPU by GPU.

    ``--column utilization.gpu=METRIC`` names the metric. Memory is in other series and not read.
    """

    title = "Prometheus"
    mark = line_like(
        r'"resultType"\s*:\s*"|"metric"\s*:\s*\{|"status"\s*:\s*"(?:error|success)"\s*,\s*"'
    )
    settable = (Column.UTILIZATION,)

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        chosen = columns_by_meaning(options.columns).get(Column.UTILIZATION)
        if isinstance(chosen, int):
            raise UsageError(
                f"--column utilization.gpu={chosen + 1}: {name} has no columns; name a metric"
            )
        self._clock = UTC_CLOCK
        self._chosen_metric = chosen
        self._metric_name: str | None = None
        self._metric: Heading | None = None  # the one that is read, once known
        self._full: float | None = None
        self._others: dict[str, None] = {}  # other utilisations
        self._left_out: dict[str, None] = {}  # other metrics
        self._guesses: list[str] = []
        self._has_clipped = False
        self._until_ns: dict[int, int] = {}  # last time of each GPU

    def _read(self) -> Rows:
        documents = JsonDocuments(self._lines, name=self._name, skipped=self._skipped)
        for number, answer in documents:
            values = self._values_in(_series_of(answer, self._name), number)
            if values and self._full is None:
                self._decide_unit(
                    [value for of_gpu in values.values() for value in of_gpu.values()]
                )
            for gpu, of_gpu in values.items():
                for stamp_ns in sorted(of_gpu):
                    if stamp_ns <= self._until_ns.get(gpu, -1):
                        self._skipped.add(Refusal.TWICE, number)
                        continue
                    ratio = self._ratio(of_gpu[stamp_ns], number)
                    yield self._sample(gpu, stamp_ns, ratio, number)
                self._until_ns[gpu] = max(self._until_ns.get(gpu, -1), max(of_gpu, default=-1))
        self._broken_off = documents.broken_off

    def _notes(self) -> list[str]:
        notes = [*self._guesses]
        if self._others:
            notes.append(
                f"Read {self._metric_name} as the utilisation, not {', '.join(self._others)}; "
                "--column utilization.gpu=METRIC changes it."
            )
        if self._has_clipped:
            notes.append("Values just over 1, as rates may have, were read as 1.")
        return notes

    def _values_in(
        self, all_series: list[dict[str, Any]], number: int
    ) -> dict[int, dict[int, str]]:
        """Return the values by GPU and time of the series that are read."""
        busy: list[tuple[Heading, dict[str, str], list[object]]] = []
        for series in all_series:
            labels = {key: str(value) for key, value in series["metric"].items()}
            name = labels.get("__name__")
            metric = metric_of(name, self._chosen_metric)
            if metric is None:
                self._left_out[name or ""] = None
            elif metric.column is Column.UTILIZATION:
                busy.append((metric, labels, series["values"]))
        if busy and self._metric is None:
            self._adopt(*min(busy, key=lambda pair: pair[0].rank)[:2])
        values: dict[int, dict[int, str]] = {}
        for _, labels, pairs in busy:
            name = labels.get("__name__")
            if name != self._metric_name:
                self._others[name or "the series without a name"] = None
            elif (gpu := self._position(labels)) is None:
                self._skipped.add(Refusal.UNKNOWN_GPU, number)
            else:
                self._add(values.setdefault(gpu, {}), pairs, number)
        return values

    def _adopt(self, metric: Heading, labels: dict[str, str]) -> None:
        self._metric = metric
        if metric.is_percent is not None:
            self._full = 100.0 if metric.is_percent else 1.0
        self._metric_name = labels.get("__name__")
        if self._metric_name is None:
            self._guesses.append("The series have no name: their values are taken as utilisation.")

    def _position(self, labels: dict[str, str]) -> int | None:
        key, host, gpu = owner_of(labels)
        note = "The labels of a series name no GPU: it counts as one GPU."
        if not gpu.uuid and gpu.index is None and note not in self._guesses:
            self._guesses.append(note)
        return self._gpus.position(key, gpu, host)

    def _add(self, values: dict[int, str], pairs: list[object], number: int) -> None:
        """Add a series of a GPU; of pods that share it, the first one counts."""
        for pair in pairs:
            point = _time_and_value(pair)
            if point is None:
                self._skipped.add(Refusal.DAMAGED_JSON, number)
            elif point[0] in values:
                self._skipped.add(Refusal.TWICE, number)
            else:
                values[point[0]] = point[1]

    def _decide_unit(self, values: list[str]) -> None:
        numbers = [float(value) for value in values if _FINITE.fullmatch(value)]
        highest = max(numbers, default=0.0)
        if 0.0 < highest <= OVER_FULL and all(value in (0.0, 1.0) for value in numbers):
            raise UnreadableLogError(
                f"{self._name}: the values are 0 and 1 only, and it is unclear whether 1 is 1 % or "
                "all of the time; ask for percent: multiply by 100"
            )
        self._full = 1.0 if highest <= OVER_FULL else 100.0
        self._unit = GuessedUnit(self._name, is_percent=self._full == 100.0, way_out=_WAY_OUT)
        if numbers:
            self._guesses += self._unit.notes

    def _ratio(self, value: str, number: int) -> float | Refusal:
        if self._unit is not None:
            self._unit.check(value, number)
        if self._full == 1.0 and _FINITE.fullmatch(value) and 1.0 < float(value) <= OVER_FULL:
            self._has_clipped = True
            return 1.0
        return ratio_of(value, full=self._full or 100.0)

    def _nothing(self) -> str:
        if self._metric is not None:
            return f"no value that is a utilisation. {' '.join(self._skipped.sentences())}"
        if self._skipped.count and not self._left_out:
            reason = self._broken_off or " ".join(self._skipped.sentences()).rstrip(".")
            return f"{reason}; no answer is complete: ask Prometheus again"
        if self._chosen_metric is not None:
            return f"has no series of {self._chosen_metric}, which --column names"
        counters = [name for name in self._left_out if is_counter(name)]
        if counters:
            return (
                f"{counters[0]} is a counter, which only rises; query its rate: "
                f"`rate({counters[0]}[1m])`"
            )
        found = ", ".join(filter(None, list(self._left_out)[:_NAMES_IN_NOTE]))
        seen = f"none of {found} is a utilisation" if found else "the answer has no series"
        return f"{seen}; query DCGM_FI_DEV_GPU_UTIL or what your exporter calls it"


def _time_and_value(pair: object) -> tuple[int, str] | None:
    """Return the time in nanoseconds since 1970 and the value of a pair; ``None``: invalid.

    Prometheus stores milliseconds; a float holds no more either.

    >>> _time_and_value([1700000000.125, "96"]), _time_and_value([None, "96"])
    ((1700000000125000000, '96'), None)
    >>> _time_and_value([1e11, "96"]) is None
    True
    """
    if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str)):
        return None
    moment_s, value = pair
    if type(moment_s) not in (int, float) or not 0 <= moment_s < _END_OF_TIME_S:
        return None
    if isinstance(moment_s, int):
        return moment_s * NS_PER_S, value
    return round(moment_s * 1_000) * 1_000_000, value


def _series_of(answer: Document, name: str) -> list[dict[str, Any]]:
    """Return the series of an answer, of its data alone, or a single series.

    Raises:
        UnreadableLogError: The answer is an error, or has no series over time.
    """
    if "error" in answer:
        reason = str(answer["error"])[:300]
        raise UnreadableLogError(f"{name}: Prometheus refused the query: {reason}; {_ADVICE}")
    data = answer.get("data", answer)
    data = data if isinstance(data, dict) else {}
    if (kind := data.get("resultType", "matrix")) != "matrix":
        raise _no_range(f"a {kind}", name)
    result = data.get("result", [data])
    found = (
        [series for series in result if isinstance(series, dict)]
        if isinstance(result, list)
        else []
    )
    found = [series for series in found if isinstance(series.get("metric"), dict)]
    if not all(isinstance(series.get("values"), list) for series in found):
        raise _no_range("values of one moment", name)
    return found


def _no_range(what: str, name: str) -> UnreadableLogError:
    return UnreadableLogError(
        f"{name}: Prometheus returned {what}, not series over time; {_ADVICE}"
    )

"""The answer of Prometheus to a range query: of dcgm-exporter, nvidia_gpu_exporter and others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.json_documents import Document, JsonDocuments
from gpumon.sources.logs.log_sample import LogOptions, LogSample, line_like
from gpumon.sources.logs.prometheus_memory import MemorySeries, MemoryTrack, is_finite, stamp_of
from gpumon.sources.logs.prometheus_metrics import Metric, SeriesOwner, Telling, metric_of, owner_of
from gpumon.sources.logs.stamps.log_clock import UTC_CLOCK
from gpumon.sources.logs.table.cell_values import ratio_of
from gpumon.sources.logs.table.guessed_unit import OVER_FULL, GuessedUnit
from gpumon.sources.logs.table.headings import Column, told_columns
from gpumon.sources.logs.table.skipped_lines import Refusal

_VALUES: Final = "values"
"""The key of the list of pairs, of which one series may have millions."""
_END_OF_TIME_S: Final = 9e9
"""The year 2255: nanoseconds up to there are a number of 64 bits."""
_LONGEST: Final = 300
_ADVICE: Final = (
    "ask for a range, such as `curl 'http://HOST:9090/api/v1/query_range?query="
    "DCGM_FI_DEV_GPU_UTIL&start=...&end=...&step=1'`"
)
_UNDECIDED_VALUES: Final = 65_536
"""Values of a metric without a name that are held back until percent or share is clear."""
_NAMES_IN_NOTE: Final = 6
_MOST_SERIES: Final = 65_536
_WAY_OUT: Final = "ask for one unit: multiply what is a share by 100"


class _SeriesPart(NamedTuple):
    """Some values of one series, in the order of the answer.

    Attributes:
        labels: Of the series; the same object in all its parts.
        pairs: Seconds since 1970, and the value as Prometheus writes it.
        number: Of the line they begin in.
    """

    labels: dict[str, str]
    pairs: list[tuple[float, str]]
    number: int


class _Told(NamedTuple):
    """What one series has told so far: one answer may be in a file twice, or overlap."""

    gpu: int
    first_ns: int
    last_ns: int


@dataclass(slots=True)
class _Series:
    labels: dict[str, str]
    metric: Metric
    owner: SeriesOwner
    gpu: int | None = None
    memory: MemoryTrack | None = None
    before: _Told | None = None
    """What the same series has told in another part of the file."""


class PrometheusLog(GpuLog):
    """Series one after another: those of one GPU in order of time, the GPUs in turn.

    ``--column utilization.gpu=METRIC`` names the metric to read.
    """

    title = "Prometheus"
    mark = line_like(
        r'"resultType"\s*:\s*"|"metric"\s*:\s*\{|"status"\s*:\s*"(?:error|success)"\s*,\s*"'
    )
    settable = (Column.UTILIZATION,)

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        chosen = told_columns(options.columns).get(Column.UTILIZATION)
        if isinstance(chosen, int):
            raise UsageError(
                f"--column utilization.gpu={chosen + 1}: {name} has no columns; name a metric"
            )
        self._clock = UTC_CLOCK
        self._told_metric = chosen
        self._metric_name: str | None = None
        self._full: float | None = None
        self._rank: int | None = None  # of the metric that is read, once there is one
        self._ends_ns: dict[tuple[str | None, ...], tuple[int, int]] = {}
        self._told_series: dict[int, _Told] = {}  # by the hash of their labels
        self._memory_series = MemorySeries()
        self._left_out: dict[str, Telling] = {}
        self._guesses: list[str] = []
        self._clipped = 0

    def _read(self) -> Rows:
        parts = self._busy_parts()
        held: list[tuple[_Series, _SeriesPart]] = []
        size = 0
        for series, part in parts:
            held.append((series, part))
            size += len(part.pairs)
            if self._full is not None or size > _UNDECIDED_VALUES or _are_percent(part):
                break
        if self._full is None:
            self._decide_unit([part for _, part in held])
        for series, part in chain(held, parts):
            yield from self._samples_of(series, part)

    def _notes(self) -> list[str]:
        notes = [*self._guesses, *self._gpus.owner_notes()]
        others = [name for name, telling in self._left_out.items() if telling is Telling.BUSY]
        if others:
            notes.append(
                f"Read {self._metric_name} as the utilisation, not {', '.join(others)}; "
                "--column utilization.gpu=METRIC changes it."
            )
        if self._clipped:
            notes.append(f"{self._clipped} values just over 1, as rates may have, were read as 1.")
        return notes

    def _busy_parts(self) -> Iterator[tuple[_Series, _SeriesPart]]:
        """The parts of the series to read; what others tell is kept, or noted."""
        series: _Series | None = None
        for part in self._parts():
            if series is None or series.labels is not part.labels:
                name = part.labels.get("__name__")
                series = _Series(part.labels, metric_of(name, self._told_metric),
                                 owner_of(part.labels))  # fmt: skip
                if series.metric.telling is Telling.BUSY and not self._adopts(name, series.metric):
                    series.metric = replace(series.metric, telling=Telling.OTHER)
                elif series.metric.telling in (Telling.OTHER, Telling.COUNTER):
                    self._left_out.setdefault(name or "", series.metric.telling)
            if series.metric.telling is Telling.BUSY:
                yield series, part
            else:
                self._keep_memory(series, part)

    def _parts(self) -> Iterator[_SeriesPart]:
        """Every series, part by part; refuses an answer that has none over time."""
        documents = JsonDocuments(
            self._lines, name=self._name, skipped=self._skipped, endless=_VALUES
        )
        for number, found in documents:
            values, labels = found.get(_VALUES), found.get("metric")
            if not isinstance(values, list):
                _refuse(found, self._name)
                continue
            labels = labels if isinstance(labels, dict) else {}
            labels.update({key: str(value) for key, value in labels.items()})
            pairs = [pair for pair in values if _is_pair(pair)]
            for _ in range(len(values) - len(pairs)):
                self._skipped.add(Refusal.DAMAGED_JSON, number)
            if values:
                yield _SeriesPart(labels, pairs, number)
        self._broken_off = documents.broken_off

    def _adopts(self, name: str | None, metric: Metric) -> bool:
        """Whether a metric is the one to read. The first that can be it, is."""
        if self._rank is None:
            self._metric_name, self._full, self._rank = name, metric.full, metric.rank
            if name is None:
                self._guesses.append(
                    "The series have no name: their values are taken as utilisation."
                )
            return True
        if name == self._metric_name:
            return True
        if metric.rank < self._rank:
            raise UnreadableLogError(
                f"{self._name}: the utilisation could be {self._metric_name} or {name}; "
                f"say which: --column utilization.gpu={name}"
            )
        self._left_out.setdefault(name or "the series without a name", Telling.BUSY)
        return False

    def _decide_unit(self, parts: list[_SeriesPart]) -> None:
        numbers = [
            float(value) for part in parts for _, value in part.pairs if is_finite(value)
        ]  # fmt: skip
        highest = max(numbers, default=0.0)
        if 0.0 < highest <= OVER_FULL and all(value in (0.0, 1.0) for value in numbers):
            raise UnreadableLogError(
                f"{self._name}: the values are 0 and 1 only, and nothing says whether 1 is 1 % or "
                "all of the time; ask for percent: multiply by 100"
            )
        self._full = 1.0 if highest <= OVER_FULL else 100.0
        self._unit = GuessedUnit(self._name, is_percent=self._full == 100.0, way_out=_WAY_OUT)
        if numbers:
            self._guesses += self._unit.notes

    def _samples_of(self, series: _Series, part: _SeriesPart) -> Rows:
        if not part.pairs:
            return
        first_ns, last_ns = stamp_of(part.pairs[0][0]), stamp_of(part.pairs[-1][0])
        if series.gpu is None:
            self._find_gpu(series, first_ns)
        gpu, memory = series.gpu, series.memory
        if gpu is None:
            self._skipped.add(Refusal.NOBODY, part.number)
            return
        for moment_s, value in self._new_pairs(series, part):
            ratio = self._ratio(value, part.number)
            stamp_ns = stamp_of(moment_s)
            if isinstance(ratio, Refusal):
                self._skipped.add(ratio, part.number)
                yield LogSample(gpu, stamp_ns, None)
                continue
            yield LogSample(gpu, stamp_ns, ratio, memory.at(stamp_ns) if memory else None)
            self._has_told = True
        self._ends_ns[series.owner.key] = (gpu, last_ns)
        self._note_told(series.labels, _Told(gpu, first_ns, last_ns))

    def _note_told(self, labels: Mapping[str, str], told: _Told) -> None:
        identity = _identity(labels)
        before = self._told_series.get(identity, told)
        if identity in self._told_series or len(self._told_series) < _MOST_SERIES:
            first_ns = min(before.first_ns, told.first_ns)
            last_ns = max(before.last_ns, told.last_ns)
            self._told_series[identity] = _Told(told.gpu, first_ns, last_ns)

    def _find_gpu(self, series: _Series, first_ns: int) -> None:
        series.before = self._told_series.get(_identity(series.labels))
        if series.before is not None:
            series.gpu = series.before.gpu
        else:
            series.gpu = self._position(series.owner, first_ns)
        series.memory = self._memory_series.take(series.owner.key)

    def _new_pairs(self, series: _Series, part: _SeriesPart) -> list[tuple[float, str]]:
        before = series.before
        if before is None:
            return part.pairs
        _, first_ns, last_ns = before
        new = [pair for pair in part.pairs if not first_ns <= stamp_of(pair[0]) <= last_ns]
        for _ in range(len(part.pairs) - len(new)):
            self._skipped.add(Refusal.TWICE, part.number)
        return new

    def _position(self, owner: SeriesOwner, first_ns: int) -> int | None:
        """Where the GPU is. Two series of one GPU at the same time are shown apart."""
        last = self._ends_ns.get(owner.key)
        if last is not None and first_ns > last[1]:
            return last[0]
        key, host = owner.key, owner.host
        if last is not None:
            count = len(self._gpus.gpus)
            key, host = (*key, f"{count}"), f"{host or 'the same host'} (series {count + 1})"
            self._note_once(
                "Several series speak of one GPU at the same time, as where pods share it: each is "
                "read as a GPU of its own. `max by (Hostname, gpu, UUID) (...)` makes them one."
            )
        elif not (owner.gpu.uuid or owner.gpu.index is not None):
            self._note_once("A series names no GPU by its labels: taken for one GPU.")
        gpu = replace(owner.gpu, memory_bytes=self._memory_series.total_bytes(owner.key))
        return self._gpus.position(key, gpu, host)

    def _note_once(self, note: str) -> None:
        if note not in self._guesses:
            self._guesses.append(note)

    def _ratio(self, value: str, number: int) -> float | Refusal:
        if self._unit is not None:
            self._unit.hold(value, number)
        ratio = ratio_of(value, full=self._full or 100.0)
        is_share = self._full == 1.0 and is_finite(value)
        if ratio is Refusal.IMPOSSIBLE and is_share and 1.0 < float(value) <= OVER_FULL:
            self._clipped += 1
            return 1.0
        return ratio

    def _keep_memory(self, series: _Series, part: _SeriesPart) -> None:
        telling, unit_bytes = series.metric.telling, series.metric.unit_bytes
        key = series.owner.key
        if telling is Telling.MEMORY_TOTAL:
            self._memory_series.keep_total(key, part.pairs, unit_bytes)
        elif telling is Telling.MEMORY_USED and key in self._ends_ns:
            self._note_once("Memory that comes after the utilisation of its GPU was not read.")
        elif telling is Telling.MEMORY_USED and not self._memory_series.keep(
            key, part.pairs, unit_bytes
        ):
            self._note_once("More values of memory than can be kept: some were not read.")

    def _nothing(self) -> str:
        if self._told_metric is not None and self._rank is None:
            return f"has no series of {self._told_metric}, which --column names"
        counters = [name for name, what in self._left_out.items() if what is Telling.COUNTER]
        if counters and self._rank is None:
            return (
                f"{counters[0]} is a counter, which only rises; query its rate: "
                f"`rate({counters[0]}[1m])`"
            )
        if self._rank is not None:
            return f"no value that is a utilisation. {' '.join(self._skipped.sentences())}"
        found = ", ".join(filter(None, list(self._left_out)[:_NAMES_IN_NOTE]))
        seen = f"none of {found} is a utilisation" if found else "the answer has no series"
        return f"{seen}; query DCGM_FI_DEV_GPU_UTIL or what your exporter calls it"


def _is_pair(pair: object) -> bool:
    """Whether it is a moment and a text.

    >>> _is_pair([1700000000.5, "96"]), _is_pair([None, "96"]), _is_pair([1e11, "96"])
    (True, False, False)
    """
    if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str)):
        return False
    return type(pair[0]) in (int, float) and 0 <= pair[0] < _END_OF_TIME_S


def _refuse(found: Document, name: str) -> None:
    """Refuse an answer that says it is none, or none over time."""
    data = found.get("data", found)
    kind = data.get("resultType", "matrix") if isinstance(data, dict) else "matrix"
    error = found.get("error")
    if isinstance(error, str):
        raise UnreadableLogError(
            f"{name}: Prometheus refused the query: {error[:_LONGEST]}; {_ADVICE}"
        )
    if isinstance(found.get("value"), list) or kind != "matrix":
        what = "values of one moment" if kind == "matrix" else f"a {str(kind)[:_LONGEST]}"
        raise UnreadableLogError(f"{name}: Prometheus gave {what}, not series over time; {_ADVICE}")


def _identity(labels: Mapping[str, str]) -> int:
    return hash(frozenset(labels.items()))


def _are_percent(part: _SeriesPart) -> bool:
    return any(is_finite(value) and float(value) > OVER_FULL for _, value in part.pairs)


FORMAT: Final = PrometheusLog

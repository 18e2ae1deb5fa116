"""CSVs with a row for each metric and time: MLflow, ClearML, Grafana, melted data frames."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from gpumon.sources.logs.formats.wide_table import Cells, WideRow, WideTable, cells_of
from gpumon.sources.logs.gpu_log import Rows
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import MAX_PIECE, head_of
from gpumon.sources.logs.prometheus_metrics import OWNER_LABELS, owner_of
from gpumon.sources.logs.table.cell_values import Refusal
from gpumon.sources.logs.table.column_names import Column, HeadingGpu
from gpumon.sources.logs.table.csv_rows import CellSplitter
from gpumon.sources.logs.table.headings import heading_of

_KEYS: Final = frozenset(
    ("key", "metric", "metric_name", "metric_key", "variant", "series", "name", "__name__", "tag",
     "measurement", "field", "_field", "title", "legend", "variable", "label")
)  # fmt: skip
_VALUE: Final = re.compile(r"_?value(?: ?#\w)?|val|y|metric_value|last_value", re.I)
_RUNS: Final = ("run_id", "run_uuid", "run", "run_name", "task", "task_id")
_LABELS: Final = OWNER_LABELS.union(_RUNS)
_HINT: Final = re.compile("val|y", re.I)
_MAX_HEADERS, _MAX_SERIES = 4, 16_384


@dataclass(frozen=True, slots=True)
class _Keyed:
    separator: str
    header: tuple[str, ...]
    key_at: int
    value_at: int


def _keyed(head: Sequence[str]) -> tuple[int, _Keyed] | None:
    """Return the number and columns of a header above rows whose keys name a utilisation."""
    looked_at = 0
    for number, line in enumerate(head, start=1):
        separator = next((sign for sign in ",;\t" if sign in line), ",")
        splitter = CellSplitter(separator)
        header = tuple(cells_of(splitter, line)) if _HINT.search(line) else ()
        value_at = next((at for at, text in enumerate(header) if _VALUE.fullmatch(text)), None)
        keys_at = [at for at, text in enumerate(header) if text.lower() in _KEYS]
        if value_at is None or not keys_at or looked_at >= _MAX_HEADERS:
            continue
        looked_at += 1
        rows = [cells_of(splitter, line) for line in head[number:]]
        for at in keys_at:
            ranks = [_busy_rank(cells[at]) for cells in rows if len(cells) == len(header)]
            # Names of GPUs alone count only if no other key is there.
            if any(rank < 2 for rank in ranks) or (ranks and max(ranks) == 2):
                return number, _Keyed(separator, header, at, value_at)
    return None


def _busy_rank(key: str) -> int:  # 3: it means no utilisation
    meant = heading_of(key)
    return meant.rank if meant is not None and meant.column is Column.UTILIZATION else 3


def _mark(head: Sequence[str]) -> int | None:
    found = _keyed(head)
    return None if found is None else found[0]


class KeyedCsvLog(WideTable):
    """A CSV whose rows name their metric by a key; rows of other metrics are skipped."""

    title = "CSV with a row for each metric"
    mark = _mark
    settable = (Column.STAMP,)

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._table = _Keyed(",", (), 0, 0)
        self._series: dict[tuple[str, ...], bool] = {}
        self._others = 0

    def _read(self) -> Rows:
        head = head_of(self._lines)
        self._lines = chain(head, self._lines)
        number, self._table = _keyed(head) or (0, self._table)
        self._learn(enumerate(self._table.header))
        yield from self._of_rows(self._rows(islice(self._numbered(MAX_PIECE), number, None)))

    def _rows(self, numbered: Iterable[tuple[int, str]]) -> Iterator[WideRow]:
        """Yield the rows of utilisations, each under the key of its series."""
        splitter = CellSplitter(self._table.separator)
        for at, line in numbered:
            cells = cells_of(splitter, line)
            if len(cells) != len(self._table.header):
                if line.strip():
                    self._skipped.add(Refusal.WIDTH, at)
                continue
            series = self._series_of(cells)
            if self._series[series]:
                yield at, self._getter(cells, series), [series]
            else:
                self._others += 1

    def _notes(self) -> list[str]:
        other = f"{self._others:,} rows hold something other than the utilisation of a GPU."
        return [*([other] if self._others else ()), *super()._notes()]

    def _getter(self, cells: Sequence[str], series: Hashable) -> Cells:
        value = cells[self._table.value_at]
        return lambda key: value if key == series else cells[key] if isinstance(key, int) else None

    def _series_of(self, cells: Sequence[str]) -> tuple[str, ...]:
        table = self._table
        named = [(name, cells[at]) for at, name in enumerate(table.header) if name in _LABELS]
        series = (cells[table.key_at], *(label for _, label in named))
        if series not in self._series:
            meant = heading_of(series[0])
            is_busy = meant is not None and meant.column is Column.UTILIZATION
            if len(self._series) >= _MAX_SERIES:
                self._series.clear()  # they are known again by their next rows
            self._series[series] = is_busy
            if is_busy and meant is not None:
                gpu = _gpu_of(meant.gpu, dict(named))
                self._place(series, replace(meant, gpu=gpu, is_optional=True), series[0])
        return series


def _gpu_of(named: HeadingGpu | None, labels: dict[str, str]) -> HeadingGpu:
    """Return the GPU that the key names, or else the other labels."""
    owner = owner_of(labels)
    run = next((labels[name] for name in _RUNS if labels.get(name)), "")
    host = owner.host or (named.owner if named is not None else "")
    owner_name = " on ".join(filter(None, (run, host)))
    if named is not None and (named.number is not None or named.uuid):
        return named._replace(owner=owner_name)
    return HeadingGpu(owner_name, owner.gpu.index, owner.gpu.mig_index, owner.gpu.uuid)

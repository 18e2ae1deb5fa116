"""``nvidia-smi dmon`` and ``dcgmi dmon``: scrolling tables with a row for each GPU and tick."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from gpumon.sources.logs.driver_errors import CELL_CODES
from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.stamps.stamp_parsers import parser_for
from gpumon.sources.logs.table.cell_values import Refusal, bytes_in, ratio_in

_TIME: Final = re.compile(r"\b[0-2]\d:[0-5]\d:[0-6]\d$", re.ASCII)
_COLUMNS: Final = frozenset(
    """pwr gtemp mtemp sm mem enc dec jpg ofa mclk pclk pviol tviol fb bar1 ccpm sbecc dbecc pci
    rxpci txpci gi ci entity gputl gract smact""".split()  # noqa: SIM905  (names side by side)
)
"""Names that are no units: a line with one of them is meant as a header."""
_MAX_LENGTH: Final = 8_192
"""No row is longer."""
_UNUSABLE: Final = -1
"""Width of a table that cannot be read: no row has it."""


@dataclass(frozen=True, slots=True)
class TableHeader:
    """The line that names the columns.

    Attributes:
        names: In lower case, in the order of the cells of a row.
        separator: ``None``: blanks.
    """

    names: tuple[str, ...]
    separator: str | None

    def at(self, name: str) -> int | None:
        """Return the position of a column, from 0; ``None``: there is none."""
        return self.names.index(name) if name in self.names else None


def header_of(line: str) -> TableHeader | None:
    """Return the columns of a header line; ``None``: units, or no header.

    >>> header_of("#Time        gpu    sm").names
    ('time', 'gpu', 'sm')
    >>> header_of("#HH:MM:SS    Idx     %") is None
    True
    """
    text = line.strip()
    if not text.startswith("#"):
        return None
    separator = "," if "," in text else None
    names = tuple(name.strip().lower() for name in text[1:].split(separator))
    return TableHeader(names, separator) if "gpu" in names else None


def _mark(head: Sequence[str]) -> int | None:
    for number, line in enumerate(head, start=1):
        header = header_of(line)
        if header is not None and not _COLUMNS.isdisjoint(header.names):
            return number
    return None


class ScrollingTable(GpuLog):
    """A log whose header may come again; rows under another one are skipped.

    Attributes:
        busy: Utilisation columns; a table has at least one of them.
    """

    busy: ClassVar[Collection[str]] = ("sm",)
    nothing = (
        "no row with a utilisation in {lines} lines; `{title} -s u` prints it in the column sm."
    )

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._width, self._refusal = _UNUSABLE, Refusal.UNHEADED
        self._separator: str | None = None
        self._header: TableHeader | None = None

    def _read(self) -> Rows:
        for number, line in self._numbered(_MAX_LENGTH):
            cells = line.split(self._separator)
            if len(cells) == self._width and cells[0].strip()[:1].isdigit():
                yield from self._row(cells, number)
            else:
                self._other_line(line.strip(), number)

    @abstractmethod
    def _row(self, cells: Sequence[str], number: int) -> Rows:
        """Yield the samples of a row."""

    @abstractmethod
    def _adopt(self, header: TableHeader) -> None:
        """Note the columns that only one of the formats has."""

    def _gpu_number(self, cell: str) -> int | None:
        bare = cell.strip()
        return int(bare) if bare.isdecimal() and len(bare) <= 4 else None

    def _stamp_ns(self, cells: Sequence[str]) -> int | None:
        """Return when a row was written; ``None``: that cannot be read."""
        text = " ".join(cells[at].strip() for at in self._stamp_at)
        if _TIME.search(text) is None:
            return None
        if self._stamps is None:
            self._stamps = parser_for(text)
        return None if self._stamps is None else self._stamps.parse(text)

    def _notes(self) -> list[str]:
        note = None if self._stamps is None else self._stamps.note
        return [note] if note else super()._notes()

    def _other_line(self, bare: str, number: int) -> None:
        if bare.startswith("#"):
            self._read_header(bare)
        elif bare and not bare[0].isdigit():
            self._foreign(bare, number)
        elif bare and self._width == _UNUSABLE:
            self._skipped.add(self._refusal, number)
        elif bare:
            self._skipped.add(Refusal.WIDTH, number)

    def _read_header(self, bare: str) -> None:
        header = header_of(bare)
        if header is None:
            return
        busy = {name: at for name in self.busy if (at := header.at(name)) is not None}
        if header == self._header:
            self._width = len(header.names)
        elif self._header is not None or not busy:
            self._width = _UNUSABLE
            self._refusal = Refusal.OTHER_HEADER if busy else Refusal.HEADER
        else:
            self._header, self._separator = header, header.separator
            self._counts_rows = header.at("time") is None
            places = [header.at(name) for name in ("date", "time")]
            self._stamp_at = [at for at in places if at is not None]
            self._gpu_at, self._busy_at = header.at("gpu") or 0, busy
            self._fb_at = header.at("fb")
            self._width = len(header.names)
            self._adopt(header)


class NvidiaSmiDmonLog(ScrollingTable):
    """``nvidia-smi dmon``: ``sm`` is the utilisation, ``fb`` the memory in use."""

    title = "nvidia-smi dmon"
    mark = _mark

    def _adopt(self, header: TableHeader) -> None:
        self._instance_at, self._compute_at = header.at("gi"), header.at("ci")

    def _row(self, cells: Sequence[str], number: int) -> Rows:
        gpu = self._position_of(cells)
        if gpu is None:
            self._skipped.add(Refusal.UNKNOWN_GPU, number)
            return
        ratio = ratio_in(cells[self._busy_at["sm"]])
        stamp_ns = self._row_clock.next_ns(gpu) if self._counts_rows else self._stamp_ns(cells)
        used = None if self._fb_at is None else bytes_in(cells[self._fb_at])
        yield self._sample(gpu, stamp_ns, ratio, number, used)

    def _position_of(self, cells: Sequence[str]) -> int | None:
        index = self._gpu_number(cells[self._gpu_at])
        if index is None:
            return None
        instance = "-" if self._instance_at is None else cells[self._instance_at].strip()
        if not instance.isdecimal():
            return self._gpus.position(index, LoggedGpu(index=index))
        compute = "" if self._compute_at is None else cells[self._compute_at].strip()
        nth = sum(gpu.index == index and gpu.mig_index is not None for gpu in self._gpus.gpus)
        key = index, instance, compute
        return self._gpus.position(key, LoggedGpu(index=index, mig_index=nth))


_HEADER: Final = re.compile(r"#\s*Entity\s")
_ENTITY: Final = re.compile(r"^([A-Z][A-Za-z-]{1,15}) {1,9}(\d{1,5})(?=\s)", re.ASCII)
_INSTANCE: Final = "GPU-I"
_OTHER_ENTITIES: Final = frozenset(
    ["GPU-CI", "Switch", "Link", "CPU", "CPU-Core", "Core", "Global"]
)
"""Entities other than GPUs and MIG instances."""
_MEANING: Final = {
    "gputl": "GPUTL (203), the driver's utilisation",
    "gract": "GRACT (1001), the share of time in which any engine of the GPU had work",
    "smact": "SMACT (1002), the mean over the multiprocessors: lower than a utilisation would be",
}
"""Utilisation fields, best first."""


class DcgmiDmonLog(ScrollingTable):
    """``dcgmi dmon`` with any fields. It has no stamps."""

    title = "dcgmi dmon"
    mark = line_like(r"^\s*#\s*Entity\s+[A-Z]")
    busy = tuple(_MEANING)
    nothing = (
        "no row with a utilisation in {lines} lines; `dcgmi dmon -e 203,252` prints it and "
        "the memory in use."
    )

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._counts_rows = True
        self._fields_used: dict[str, None] = {}

    def _numbered(self, longest: int) -> Iterator[tuple[int, str]]:
        for number, line in super()._numbered(longest):
            yield number, _as_dmon(line)

    def _notes(self) -> list[str]:
        fields = "; where that has no answer ".join(_MEANING[field] for field in self._fields_used)
        return [*([f"Busy is {fields}."] if fields else ()), *super()._notes()]

    def _adopt(self, header: TableHeader) -> None:
        self._entity_at = header.at("entity") or 0

    def _row(self, cells: Sequence[str], number: int) -> Rows:
        kind, entity = cells[self._entity_at], self._gpu_number(cells[self._gpu_at])
        gpu = None if entity is None else self._position_of(kind, entity)
        if gpu is None:
            if kind not in _OTHER_ENTITIES:
                self._skipped.add(Refusal.UNKNOWN_GPU, number)
            return
        used = None if self._fb_at is None else bytes_in(cells[self._fb_at])
        stamp_ns = self._row_clock.next_ns(gpu)
        yield self._sample(gpu, stamp_ns, self._ratio(cells), number, used)

    def _ratio(self, cells: Sequence[str]) -> float | Refusal:
        """Return the best field that has an answer."""
        ratio: float | Refusal = Refusal.NO_ANSWER
        for field, position in self._busy_at.items():
            ratio = ratio_in(cells[position], 100.0 if field == "gputl" else 1.0)
            if ratio is not Refusal.NO_ANSWER and ratio not in CELL_CODES:
                self._fields_used[field] = None
                break
        return ratio

    def _position_of(self, kind: str, entity: int) -> int | None:
        if kind not in ("GPU", _INSTANCE):
            return None
        position = self._gpus.known((kind, entity))
        if position is not None:
            return position
        gpu = LoggedGpu(index=entity) if kind == "GPU" else self._instance(entity)
        return self._gpus.position((kind, entity), gpu)

    def _instance(self, number: int) -> LoggedGpu:
        """Return a MIG instance; its GPU is known only if there is just one."""
        gpus = [at for at, gpu in enumerate(self._gpus.gpus) if gpu.mig_index is None]
        if len(gpus) != 1:
            return LoggedGpu(name=f"{_INSTANCE} {number}")
        return LoggedGpu(index=self._gpus.mark_partitioned(gpus[0]).index, mig_index=number)


def _as_dmon(line: str) -> str:
    """Return a line as nvidia-smi dmon would write it.

    >>> _as_dmon("#Entity  GPUTL  FBUSD"), _as_dmon("   GPU 0  Not Supported  12.5"), _as_dmon("ID")
    ('# gpu entity GPUTL  fb', '0 GPU  N/A  12.5', '#')
    """
    bare = line.strip().replace("Not Supported", "N/A")
    if bare.lower().removeprefix("#").strip() == "id":
        return "#"
    if found := _HEADER.match(bare):
        return f"# gpu entity {bare[found.end() :].strip().replace('FBUSD', 'fb')}"
    return _ENTITY.sub(r"\2 \1", bare, count=1)

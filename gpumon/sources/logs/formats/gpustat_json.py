"""What ``gpustat --json`` prints, one reading after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.json_pieces import Document, JsonDocuments, bytes_of, ratio_of
from gpumon.sources.logs.log_sample import (
    LogFacts,
    LogFormat,
    LoggedGpu,
    LogOptions,
    LogSample,
    line_like,
)
from gpumon.sources.logs.stamps.stamp_parsers import DateStamps
from gpumon.sources.logs.table.cells import Refusal, SkippedLines
from gpumon.sources.logs.table.gpu_rows import MAX_GPUS, GpuTable

_MIB: Final = 1 << 20


class GpustatJsonLog:
    """Readings as JSON objects: pretty-printed as gpustat does, or one a line.

    Args:
        lines: The log's text.
        name: What to call it in sentences.
        options: Nothing in them matters here: gpustat says everything itself.
    """

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._name = name
        self._skipped = SkippedLines()
        self._documents = JsonDocuments(lines, name=name, skipped=self._skipped)
        self._stamps = DateStamps()
        self._table = GpuTable()
        self._places: dict[tuple[str, int | None], int] = {}

    def samples(self) -> Iterator[LogSample]:
        """A sample of each GPU of each reading.

        Raises:
            UnreadableLogError: No reading says how busy a GPU was.
        """
        told = False
        for number, reading in self._documents:
            stamp_ns = self._stamps.parse(str(reading.get("query_time")))
            if stamp_ns is None:
                self._skipped.add(Refusal.STAMP, number)
                continue
            gpus = reading.get("gpus")
            for gpu in gpus if isinstance(gpus, list) else ():
                sample = self._sample(gpu, stamp_ns, number, reading.get("hostname"))
                if sample is not None:
                    told = told or sample.busy_ratio is not None
                    yield sample
        if not told:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(f"{self._name}: no reading with a utilisation. {reasons}")

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        return LogFacts(
            clock=self._stamps.clock,
            gpus=tuple(self._table.gpus),
            skipped_lines=self._skipped.count,
            period_ns=None,
            notes=self._skipped.sentences(),
            broken_off=self._documents.broken_off,
        )

    def _sample(self, gpu: Document, stamp_ns: int, number: int, host: object) -> LogSample | None:
        position = self._position(gpu, host) if isinstance(gpu, dict) else None
        if position is None:
            self._skipped.add(Refusal.NOBODY, number)
            return None
        ratio = ratio_of(gpu.get("utilization.gpu"), full=100.0)
        if isinstance(ratio, Refusal):
            self._skipped.add(ratio, number)
            return LogSample(position, stamp_ns, None)
        used_bytes = bytes_of(gpu.get("memory.used"), unit_bytes=_MIB)
        return LogSample(position, stamp_ns, ratio, used_bytes)

    def _position(self, gpu: Document, host: object) -> int | None:
        uuid, name, said = gpu.get("uuid"), gpu.get("name"), gpu.get("index")
        index = said if isinstance(said, int) and 0 <= said < MAX_GPUS else None
        if not isinstance(uuid, str) and index is None:
            return None
        # The same UUID on another host does not exist; the same index does.
        place = (str(host), index)
        if not isinstance(uuid, str) and place in self._places:
            return self._places[place]
        position = self._table.position(
            uuid if isinstance(uuid, str) else place,
            LoggedGpu(
                index=index,
                uuid=uuid if isinstance(uuid, str) else None,
                name=name if isinstance(name, str) else None,
                memory_bytes=bytes_of(gpu.get("memory.total"), unit_bytes=_MIB),
            ),
        )
        if position is not None and len(self._places) < MAX_GPUS:
            self._places[place] = position
        return position


FORMAT: Final = LogFormat(
    title="gpustat --json", mark=line_like(r'"query_time"\s*:'), reader=GpustatJsonLog
)

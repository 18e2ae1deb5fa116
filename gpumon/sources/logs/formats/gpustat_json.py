"""What ``gpustat --json`` prints, one reading after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.json_documents import Document, JsonDocuments
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.stamps.stamp_parsers import DateStamps
from gpumon.sources.logs.table.cell_values import MIB, bytes_of, ratio_of
from gpumon.sources.logs.table.gpu_table import MAX_GPUS
from gpumon.sources.logs.table.skipped_lines import Refusal


class GpustatJsonLog(GpuLog):
    """Readings as JSON objects: pretty-printed as gpustat does, or one a line."""

    title = "gpustat --json"
    mark = line_like(r'"query_time"\s*:')
    nothing = "no reading with a utilisation."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._dates = self._stamps = DateStamps()
        self._places: dict[tuple[str, int | None], int] = {}

    def _read(self) -> Rows:
        documents = JsonDocuments(self._lines, name=self._name, skipped=self._skipped)
        count = 0
        for number, reading in documents:
            stamp_ns = self._dates.parse(str(reading.get("query_time")))
            if stamp_ns is None:
                self._skipped.add(Refusal.STAMP, number)
                continue
            gpus = reading.get("gpus")
            gpus = gpus if isinstance(gpus, list) else []
            count = len(gpus)
            for gpu in gpus:
                yield from self._of_gpu(gpu, stamp_ns, number, reading.get("hostname"))
        self._broken_off = documents.broken_off
        self._lost_rows += documents.left_out * count

    def _of_gpu(self, gpu: object, stamp_ns: int, number: int, host: object) -> Rows:
        if not isinstance(gpu, dict) or (position := self._position(gpu, host)) is None:
            self._skipped.add(Refusal.NOBODY, number)
            return
        ratio = ratio_of(gpu.get("utilization.gpu"), full=100.0)
        used_bytes = bytes_of(gpu.get("memory.used"), unit_bytes=MIB)
        yield self._sample(position, stamp_ns, ratio, number, used_bytes)

    def _position(self, gpu: Document, host: object) -> int | None:
        uuid, name, said = gpu.get("uuid"), gpu.get("name"), gpu.get("index")
        index = said if isinstance(said, int) and 0 <= said < MAX_GPUS else None
        if not isinstance(uuid, str) and index is None:
            return None
        # The same UUID on another host does not exist; the same index does.
        place = (str(host), index)
        if not isinstance(uuid, str) and place in self._places:
            return self._places[place]
        position = self._gpus.position(
            uuid if isinstance(uuid, str) else place,
            LoggedGpu(
                index=index,
                uuid=uuid if isinstance(uuid, str) else None,
                name=name if isinstance(name, str) else None,
                memory_bytes=bytes_of(gpu.get("memory.total"), unit_bytes=MIB),
            ),
        )
        if position is not None and len(self._places) < MAX_GPUS:
            self._places[place] = position
        return position


FORMAT: Final = GpustatJsonLog

"""``nvidia-smi dmon``: a row for each GPU and tick, with any ``-s`` and any ``-o``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.sources.logs.gpu_log import Rows
from gpumon.sources.logs.log_sample import LogFormat, LoggedGpu
from gpumon.sources.logs.scrolling_table import ScrollingTable, TableHeader, header_mark
from gpumon.sources.logs.table.skipped_lines import Refusal


class NvidiaSmiDmonLog(ScrollingTable):
    """One log of ``nvidia-smi dmon``, in blanks or commas.

    ``sm`` is NVML's utilisation of the GPU, ``fb`` its memory in use.
    """

    nothing = (
        "no row with a utilisation in {lines} lines; `nvidia-smi dmon` tells it in the column sm, "
        "with -s u."
    )
    needed = ("sm",)

    def _adopt(self, header: TableHeader) -> None:
        self._gpu_at, self._sm_at = header.at("gpu") or 0, header.at("sm") or 0
        self._fb_at = header.at("fb")
        self._instance_at, self._compute_at = header.at("gi"), header.at("ci")

    def _row(self, cells: Sequence[str], number: int) -> Rows:
        gpu = self._position_of(cells)
        if gpu is None:
            self._refuse(Refusal.NOBODY, number)
            return
        ratio = self._cells.read(cells[self._sm_at])
        stamp_ns = self._row_clock.next_ns(gpu) if self._counts_rows else self._stamp_ns(cells)
        used = None if self._fb_at is None else self._memory.bytes_of(cells[self._fb_at])
        yield self._sample(gpu, stamp_ns, ratio, number, used)

    def _position_of(self, cells: Sequence[str]) -> int | None:
        index = self._gpu_number(cells[self._gpu_at])
        if index is None:
            return None
        instance = "-" if self._instance_at is None else cells[self._instance_at].strip()
        if not instance.isdecimal():
            return self._gpus.position(index, LoggedGpu(index=index))
        compute = "" if self._compute_at is None else cells[self._compute_at].strip()
        nth = sum(one.index == index and one.mig_index is not None for one in self._gpus.gpus)
        key = index, instance, compute
        return self._gpus.position(key, LoggedGpu(index=index, mig_index=nth))


FORMAT: Final = LogFormat(
    title="nvidia-smi dmon", mark=header_mark(has_pid=False), reader=NvidiaSmiDmonLog
)

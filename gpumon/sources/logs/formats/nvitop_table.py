"""What ``nvitop -1`` prints, one table after another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.log_text import numbered_lines, without_colours
from gpumon.sources.logs.stamps.date_lines import find_ctime
from gpumon.sources.logs.stamps.log_clock import LOCAL_CLOCK
from gpumon.sources.logs.table.skipped_lines import Refusal

_BAR: Final = "[│|]"
_AMOUNT: Final = r"\d{1,9}(?:\.\d{1,9})?[KMGT]?i?B|N/A"
_GPU: Final = re.compile(
    rf"^{_BAR} {{2,3}}(?P<index>\d{{1,3}}) {{1,2}}(?P<name>[^\s│|][^│|]*){_BAR}"
    rf" [0-9A-F]{{8}}:[^│|]*{_BAR} *(?P<mig>\S+)"
)
_STATE: Final = re.compile(
    rf"^{_BAR}(?: {{2,3}}(?P<index>\d{{1,3}}))? [^│|]*{_BAR} *(?P<used>{_AMOUNT}) /"
    rf" *(?P<total>{_AMOUNT}) *{_BAR} *(?P<busy>\d{{1,3}} ?%|N/A|ERR!?) +\S"
)
_TITLE: Final = re.compile(rf"^{_BAR} NVITOP \d")
_ELSE: Final = re.compile(r"\s|[│|├╞╒╘╔╚╠╟+\[─═=-]|Press |No running processes", re.ASCII)
"""How the lines of a table begin that speak of no GPU, and those between two tables."""
_UNIT_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class NvitopTableLog(GpuLog):
    """Tables with two lines a GPU, or one where the terminal was low."""

    title = "nvitop -1"
    mark = line_like(rf"^(?:\x1b\[[0-9;]*m)*{_BAR} NVITOP \d")
    nothing = "no table with a utilisation."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._counts_rows = True
        self._has_begun = False
        self._stamp_ns: int | None = None

    def _read(self) -> Rows:
        begun: re.Match[str] | None = None
        for number, raw in numbered_lines(self._lines):
            line = without_colours(raw)
            state = _STATE.match(line)
            if state is not None:
                yield from self._row(begun, state, number)
                begun = None
                continue
            begun = _GPU.match(line)
            if begun is None:
                self._other(line, number)

    def _other(self, line: str, number: int) -> None:
        moment_ns = find_ctime(line)
        if moment_ns is not None:
            self._stamp_ns = moment_ns
            if not self._has_begun:
                self._counts_rows, self._clock = False, LOCAL_CLOCK
            self._has_begun = True
        elif _TITLE.match(line):
            self._has_begun = True
        elif line.strip() and not _ELSE.match(line):
            self._skipped.add(Refusal.FOREIGN, number)

    def _row(self, begun: re.Match[str] | None, state: re.Match[str], number: int) -> Rows:
        index = state["index"] or (begun and begun["index"])
        told = LoggedGpu(
            index=int(index) if index else None,
            name=_name_in(begun["name"]) if begun else None,
            memory_bytes=_bytes(state["total"]),
            mig_enabled=begun is not None and begun["mig"] == "Enabled",
        )
        gpu = self._gpus.position(told.index, told) if index else None
        if gpu is None:
            self._skipped.add(Refusal.NOBODY, number)
            return
        stamp_ns = self._row_clock.next_ns(gpu) if self._counts_rows else self._stamp_ns
        if stamp_ns is None:
            self._skipped.add(Refusal.STAMP, number)
            return
        ratio = self._cells.read(state["busy"].replace(" ", ""))
        yield self._sample(gpu, stamp_ns, ratio, number, _bytes(state["used"]))


def _name_in(cell: str) -> str:
    """The name of a GPU, before whether its persistence mode is on.

    >>> _name_in("NVIDIA A40   Off "), _name_in("A40 ")
    ('NVIDIA A40', 'A40')
    """
    name, _, mode = cell.rstrip().rpartition(" ")
    return name.rstrip() if name and mode in ("On", "Off", "N/A") else cell.rstrip()


def _bytes(amount: str) -> int | None:
    """An amount of memory as nvitop writes it, which is rounded to what fits the cell.

    >>> _bytes("12000MiB"), _bytes("N/A")
    (12582912000, None)
    """
    number = amount.rstrip("iB").rstrip("KMGT")
    if not number[:1].isdigit():
        return None
    return round(float(number) * _UNIT_BYTES[amount[len(number) :].rstrip("iB")])


FORMAT: Final = NvitopTableLog

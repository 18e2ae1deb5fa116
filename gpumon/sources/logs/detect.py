"""Which format a log has: by its content, never by its file name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions, LogReader
from gpumon.sources.logs.nvidia_smi_csv import NvidiaSmiCsvLog

_LOOKED_AT_LINES: Final = 64
_CSV_ADVICE: Final = (
    "this version reads CSV: log again with "
    "`nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1`"
)


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A format gpumon knows by sight.

    Attributes:
        title: What to call it.
        mark: What one of its first lines looks like.
        reader: Who reads it; ``None``: nobody yet.
    """

    title: str
    mark: re.Pattern[str]
    reader: Callable[..., LogReader] | None = None

    def marked_line(self, head: Sequence[str]) -> int | None:
        """Number, from 1, of the first line that gives the format away."""
        for number, line in enumerate(head, start=1):
            if self.mark.search(line):
                return number
        return None


FORMATS: Final = (
    LogFormat("the plain table of nvidia-smi", re.compile(r"^\|\s*NVIDIA-SMI \d")),
    LogFormat("the output of nvidia-smi pmon", re.compile(r"^#\s*gpu\s+pid\b")),
    LogFormat("the output of nvidia-smi dmon", re.compile(r"^#\s*(Date\s+Time\s+)?gpu\s+\w")),
    LogFormat("the output of dcgmi dmon", re.compile(r"^#\s*Entity\b")),
    LogFormat("the XML of nvidia-smi -q -x", re.compile(r"<nvidia_smi_log\b")),
    LogFormat("CSV", re.compile(r""), NvidiaSmiCsvLog),
)
"""Tried in this order. A new format is one file in this folder and one entry before CSV."""


def reader_for(lines: Iterator[str], *, name: str, options: LogOptions) -> LogReader:
    """The reader that understands a log.

    Args:
        lines: The log's text; only its first lines are consumed here.
        name: What to call the log in sentences.
        options: What the user said about it.

    Raises:
        UnreadableLogError: A format that is known and cannot be read yet.
    """
    head = list(islice(lines, _LOOKED_AT_LINES))
    for known in FORMATS:
        number = known.marked_line(head)
        if number is None:
            continue
        if known.reader is not None:
            return known.reader(chain(head, lines), name=name, options=options)
        raise UnreadableLogError(
            f"{name}: line {number}: this is {known.title}, "
            f"which gpumon cannot read yet; {_CSV_ADVICE}"
        )
    raise UnreadableLogError(f"{name}: has no lines")

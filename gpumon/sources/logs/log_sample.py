"""What all log formats produce: samples, GPUs and facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpumon.sources.logs.driver_errors import LoggedError
from gpumon.sources.logs.stamps.log_clock import LogClock

BEST_QUERY: Final = "`nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1`"
"""What to log with if a log cannot be read."""

WITH_MIG: Final = (
    "nvidia-smi shows no utilisation of a GPU with MIG on: `dcgmi dmon -e 1001` logs that of its "
    "instances, and `gpumon serve` watches those that the board shows. With MIG off, `gpumon "
    "doctor` on that machine says whether its driver reports one"
)
"""What to say if no row has a utilisation."""

Mark = Callable[[Sequence[str]], "int | None"]
"""Number, from 1, of the first line that identifies a format; ``None``: there is none."""


class LogSample(NamedTuple):
    """One row of a log: how busy one GPU was up to its stamp.

    Attributes:
        gpu: Position of the GPU in ``LogFacts.gpus``.
        stamp_ns: Nanoseconds on the log's own clock, which may run back from row to row.
        busy_ratio: 0 to 1; ``None``: no valid answer; the time before it was not observed.
        memory_used_bytes: Memory of the GPU in use; ``None``: unknown.
    """

    gpu: int
    stamp_ns: int
    busy_ratio: float | None
    memory_used_bytes: int | None = None


class RowColumns(NamedTuple):
    """Consecutive rows of one GPU as columns: see ``LogSample``."""

    gpu: int
    stamps_ns: Sequence[int]
    busy_ratios: Sequence[float | None]
    memory_used_bytes: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class LoggedGpu:
    """A GPU as a log describes it; ``None`` where the log does not say.

    Attributes:
        index: NVML's index; for a MIG instance that of its GPU.
        uuid: Of the GPU, or of the MIG instance.
        mig_index: Number of the MIG instance on its GPU; ``None``: a full GPU.
    """

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    mig_index: int | None = None
    mig_enabled: bool = False
    bus_id: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What the user says about a log.

    Attributes:
        columns: Column name, as nvidia-smi calls it, to its position, from 0, or to its heading.
        period_ns: Time between two rows; ``None``: from the stamps, or 1 s.
    """

    columns: Mapping[str, int | str] = field(default_factory=dict)
    period_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What is known of a log once it has been read to its end.

    Attributes:
        period_ns: Time between two rows, if there are no stamps.
        notes: Sentences on what was assumed, guessed or skipped.
        broken_off: How and where the log broke off, without a full stop; ``None``: not known to.
        is_guessed: Whether the utilisation column was found only by the shape of its cells.
        partly: Line and stamp of the first row of a GPU that has an error and a utilisation, by
            position.
        lost_rows: Skipped rows, one a GPU, whose GPU or time is unknown.
        bare_times: Heading of times that were read as seconds without a unit; ``None``: none.
    """

    clock: LogClock
    gpus: tuple[LoggedGpu, ...]
    skipped_lines: int
    period_ns: int | None
    notes: tuple[str, ...]
    broken_off: str | None = None
    is_guessed: bool = False
    errors: tuple[LoggedError, ...] = ()
    partly: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    lost_rows: int = 0
    bare_times: str | None = None


def line_like(pattern: str) -> Mark:
    """Return a mark: the first line in which ``pattern`` is found.

    >>> line_like("^# gpu")(["", "# gpu  pwr", "    0   43"])
    2
    """
    sought = re.compile(pattern)

    def mark(head: Sequence[str]) -> int | None:
        return next((at for at, line in enumerate(head, start=1) if sought.search(line)), None)

    return mark

"""What logs say in the words every format shares: samples, GPUs, facts, and marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpumon.sources.logs.driver_errors import LoggedError
from gpumon.sources.logs.stamps.log_clock import LogClock

BEST_QUERY: Final = "`nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1`"
"""What to log with, where a log cannot be read: it says all that is needed."""

WITH_MIG: Final = (
    "nvidia-smi shows no utilisation of a GPU with MIG on: `dcgmi dmon -e 1001` logs that of its "
    "instances, and `gpumon serve` watches those that the board shows. With MIG off, `gpumon "
    "doctor` on that machine says whether its driver reports one"
)
"""What to say where nothing tells how busy a GPU was."""

Mark = Callable[[Sequence[str]], "int | None"]
"""Number, from 1, of the line among the first ones that gives a log away; ``None``: none does."""


class LogSample(NamedTuple):
    """One row of a log: how busy one GPU was over the time that ends at the stamp.

    Attributes:
        gpu: Position of the GPU in ``LogFacts.gpus``.
        stamp_ns: Nanoseconds on the log's own clock, which may run back from row to row.
        busy_ratio: 0 to 1; ``None`` where the row gives no answer that a
            device can have meant. The time before it was then not observed.
        memory_used_bytes: Memory of the GPU that was in use; ``None`` where
            the row does not say.
    """

    gpu: int
    stamp_ns: int
    busy_ratio: float | None
    memory_used_bytes: int | None = None


class RowColumns(NamedTuple):
    """Rows of one GPU in turn, as columns: see ``LogSample``."""

    gpu: int
    stamps_ns: Sequence[int]
    busy_ratios: Sequence[float | None]
    memory_used_bytes: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class LoggedGpu:
    """A GPU as a log knows it; ``None`` where the log does not say.

    Attributes:
        index: NVML's index; for a MIG instance that of the GPU it is a part of.
        uuid: Of the GPU, or of the MIG instance.
        name: The model's name.
        memory_bytes: How much memory it has.
        mig_index: Number of the MIG instance on its GPU; ``None``: a whole GPU.
        mig_enabled: Whether it is a GPU that is cut into instances.
        bus_id: Where it sits on the PCI bus.
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
    """What the user says about a log that does not say it itself.

    Attributes:
        columns: Column name, as nvidia-smi calls it, to its position, from 0,
            or to what the log itself calls it.
        period_ns: Time between two rows; ``None``: as the stamps say, or 1 s.
    """

    columns: Mapping[str, int | str] = field(default_factory=dict)
    period_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What is known of a log as a whole, once it has been read to its end.

    Attributes:
        clock: What its stamps mean.
        gpus: The GPUs it told apart, in order of appearance.
        skipped_lines: Lines that could not be used.
        period_ns: Time between two rows, where the stamps do not tell it.
        notes: Sentences: what was assumed, guessed or skipped.
        broken_off: How and where the log broke off, without a full stop; ``None``: it did not, or
            nobody can tell.
        is_guessed: Whether nothing but the shape of its cells says which of them are the
            utilisation.
        errors: Why the driver could not read GPUs in a part of it.
        lost_rows: Rows in the skipped lines of no GPU or no moment that can be told, one a GPU.
        partly: By position, the line and the stamp of the first row of a GPU that has an error
            beside a utilisation.
        bare_times: Heading of times that were read as seconds though nothing says their unit;
            ``None``: there are none.
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
    """A mark: the first line in which ``pattern`` is found.

    >>> line_like("^# gpu")(["", "# gpu  pwr", "    0   43"])
    2
    """
    sought = re.compile(pattern)

    def mark(head: Sequence[str]) -> int | None:
        return next((at for at, line in enumerate(head, start=1) if sought.search(line)), None)

    return mark

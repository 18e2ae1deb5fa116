"""The timeline of a report: a lane for each GPU and each run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.phase import InputWaitReason, TrainingPhase
from gpumon.core.report.report import Report


@dataclass(frozen=True, slots=True)
class RunLane:
    """What one run was doing, in cells of equal width.

    Attributes:
        run: As in ``RunReport``; so is ``pid``.
        start_ns: Start of the first cell, on the clock of the report.
        end_ns: End of the last cell, which may be narrower than the others.
        cell_ns: Width of a cell.
        phase_ns: By phase, the time in each cell.
        reason_ns: By reason, the time in each cell that its GPUs waited for input, summed over
            GPUs; empty: unknown.
    """

    run: str
    pid: int
    start_ns: int
    end_ns: int
    cell_ns: int
    phase_ns: dict[TrainingPhase, tuple[int, ...]]
    reason_ns: dict[InputWaitReason, tuple[int, ...]] = field(default_factory=dict)


class Lanes(NamedTuple):
    """The lanes of one report.

    Attributes:
        gpus: One for each of its GPUs, in its order; empty lanes for unknown ones.
        runs: One for each of its known runs, in its order.
    """

    gpus: tuple[Lane, ...]
    runs: tuple[RunLane, ...] = ()


class ReportWithLanes(NamedTuple):
    """A report, and the lanes of its picture; ``None``: no picture."""

    report: Report
    lanes: Lanes | None

"""What happened when, for the picture of a report: a lane for each GPU and for each run."""

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
        run: Its label, as in its ``RunReport``; so is ``pid``.
        start_ns: Where the first cell begins, on the clock of the report.
        end_ns: Where the last one ends; it may be narrower than the others.
        cell_ns: Width of a cell.
        phase_ns: Of each phase that it was in, the time in each cell.
        reason_ns: Of each reason why its GPUs waited for input, how long they did in each cell,
            all added up; empty where nobody looked.
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
        gpus: One for each of its GPUs, in its order; an empty one where nothing is known.
        runs: One for each of its runs of which something is known, in its order.
    """

    gpus: tuple[Lane, ...]
    runs: tuple[RunLane, ...] = ()


class ReportWithLanes(NamedTuple):
    """A report, and what its picture needs; without ``lanes`` there is none."""

    report: Report
    lanes: Lanes | None

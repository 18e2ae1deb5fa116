"""What a GPU does now, beside the totals of all its time."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.verdict import Verdict, VerdictName


class NowVerdict(NamedTuple):
    """The verdict on a GPU's last minutes in use, within its present job.

    Attributes:
        name: The verdict now: that of ``verdict``, but ``not_in_use`` once the job has ended or
            while its process is suspended, and ``hanging`` while its run hangs.
        since_ns: Since when, on the clock of the intervals.
        totals: Where the time went: of the last ten minutes in use of the job that is on, or all
            of the last job, once that has ended.
        verdict: On these totals.
        ended_ns: When the last job ended; ``None``: it goes on, or there was none.
        is_suspended: Whether the processes of its runs are stopped.
        before: The name before ``since_ns``, in the same job; ``None``: there was none.
    """

    name: VerdictName
    since_ns: int
    totals: GpuTotals
    verdict: Verdict
    ended_ns: int | None = None
    is_suspended: bool = False
    before: VerdictName | None = None

    @property
    def has_recovered(self) -> bool:
        """Whether it has stopped losing time, within its job."""
        is_well = self.name is VerdictName.HEALTHY
        return is_well and self.before is not None and self.before.is_of_a_loss

    @property
    def window_ns(self) -> int:
        """The time in use that the totals cover."""
        return self.totals.in_use_ns

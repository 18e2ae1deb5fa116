"""What stack samples show of the process of one GPU's newest job."""

from __future__ import annotations

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.stacks.evidence import StackEvidence, StackFinding


class JobStacks:
    """What stack samples show of the newest job on one GPU.

    Attributes:
        evidence: All of them.
    """

    def __init__(self) -> None:
        self.evidence = StackEvidence()
        self._job = 0
        self._finding: StackFinding | None = None

    def finding(self, ledger: GpuLedger) -> StackFinding | None:
        """What those show whose driver samples have come; ``None``: there are none."""
        joined = ledger.pop_stack_samples()
        if ledger.jobs != self._job:
            self._job, self.evidence, self._finding = ledger.jobs, StackEvidence(), None
        for one in joined:
            self.evidence.add(one.kind, one.item.place)
        if joined:
            self._finding = self.evidence.finding()
        return self._finding

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
        self._owners: set[int | None] = set()
        self._job = 0
        self._finding: StackFinding | None = None

    def finding(self, ledger: GpuLedger) -> StackFinding | None:
        """What those show whose driver samples have come; ``None``: there are none."""
        joined = ledger.pop_stack_samples()
        if ledger.jobs != self._job:
            self._job, self.evidence, self._finding = ledger.jobs, StackEvidence(), None
            self._owners.clear()
        for one in joined:
            self.evidence.add(one.kind, one.item.place)
            self._owners.add(one.item.owner_uid)
        if joined:
            owner_uid = next(iter(self._owners)) if len(self._owners) == 1 else None
            self._finding = self.evidence.finding()._replace(owner_uid=owner_uid)
        return self._finding

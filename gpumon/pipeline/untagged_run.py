"""What the machine shows of a run without a ring, as ``HostReader`` does of runs with one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause
from gpumon.core.ring_format.events import NO_RECORDS, RingReading, RunFacts
from gpumon.core.sample import BusySample
from gpumon.core.stacks.sample_join import IDLE_UP_TO
from gpumon.core.waits.evidence import HostEvidence
from gpumon.core.waits.reasons import RunReasons, WaitReason
from gpumon.core.waits.wait_rules import sleeps_for_network
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.machine_totals import MachineTotals
from gpumon.sources.host.process_tasks import inner_number
from gpumon.sources.host.run_inspection import RunInspection

_EVERY_NS: Final = NS_PER_S
_SETTLED_AFTER_NS: Final = 3 * NS_PER_S
"""By then the evidence on a window has been read."""
_LEAST_RATIO: Final = 0.05
_RECENT: Final = 12
"""Windows whose mean stands for the last second or two."""


class UntaggedRun:
    """Inspects one process once a second, and splits idle time by what held it up.

    All idle time counts as a wait for input: use the result only where stacks show that it is.
    Never raises; where the kernel gives no answer, there is no reason.
    """

    def __init__(self, pid: int, now_ns: int, proc: str = "/proc") -> None:
        self._files, self._machine, self._reasons = KeptFiles(), MachineTotals(proc), RunReasons()
        self._due_ns, self._reads_networks = now_ns, False
        self._open: deque[BusySample] = deque()
        self._inspected: deque[HostEvidence] = deque()
        self._recent: deque[BusySample] = deque(maxlen=_RECENT)
        self._inspection: RunInspection | None = None
        with suppress(OSError, ValueError):
            self._inspection = RunInspection(_reading(pid, now_ns, proc), self._files, proc)

    def ingest(self, windows: Iterable[BusySample], now_ns: int) -> None:
        """Add the newest windows, and inspect the process if a second has passed."""
        for window in windows:
            self._open.append(window)
            self._recent.append(window)
        self._observe()
        if self._inspection is None or now_ns < self._due_ns:
            return
        self._due_ns = now_ns + _EVERY_NS
        try:
            evidence = self._inspection.inspect(
                now_ns,
                None,
                self._machine.advance(now_ns, with_networks=self._reads_networks),
                waiting_ratio=self._idle_ratio(),
                is_waiting=True,
            )
        except (OSError, ValueError):  # it has ended
            self.close()
            return
        if evidence is not None:
            self._reads_networks = sleeps_for_network(evidence)
            if self._idle_ratio() >= _LEAST_RATIO:
                self._inspected.append(evidence)
        self._settle(now_ns - _SETTLED_AFTER_NS)

    def reasons(self) -> tuple[WaitReason, ...]:
        """Why it waited so far; windows of the last seconds included."""
        if self._open:
            self._settle(self._open[-1].end_ns)
        return self._reasons.report()

    def close(self) -> None:
        if self._inspection is not None:
            self._inspection.close()
            self._inspection = None
        self._files.close()

    def _observe(self) -> None:
        """Add the evidence whose time the windows cover.

        The state of the training thread is evidence only where the GPU was idle when it was read:
        in its steps, it waits for the GPU.
        """
        until_ns = self._open[-1].end_ns if self._open else 0
        while self._inspected and self._inspected[0].end_ns <= until_ns:
            evidence = self._inspected.popleft()
            if evidence.main is not None and not self._was_idle(evidence.end_ns):
                stateless = evidence.main._replace(state=None, sleeps_in=None)
                evidence = replace(evidence, main=stateless)
            self._reasons.observe(evidence)

    def _was_idle(self, at_ns: int) -> bool:
        return any(
            window.start_ns < at_ns <= window.end_ns and window.busy_ratio <= IDLE_UP_TO
            for window in self._open
        )

    def _idle_ratio(self) -> float:
        length_ns = sum(window.length_ns for window in self._recent)
        return sum(window.idle_ns for window in self._recent) / length_ns if length_ns else 0.0

    def _settle(self, until_ns: int) -> None:
        while self._open and self._open[0].end_ns <= until_ns:
            window = self._open.popleft()
            if window.idle_ns:
                self._reasons.split(
                    IdleCause.INPUT_WAIT, window.start_ns, window.end_ns, window.idle_ns
                )
        self._reasons.forget_before(until_ns)


def _reading(pid: int, now_ns: int, proc: str) -> RingReading:
    """The reading of a ring that this process could have written.

    Raises:
        OSError: It has ended, or is hidden.
        ValueError: The kernel's file has another form than expected.
    """
    folder = f"{proc}/{pid}"
    inner = inner_number(KeptFiles.read_once(f"{folder}/status")) or pid
    facts = RunFacts(run="", job="", pid=inner, boot_id="", started_ns=now_ns)
    return RingReading(
        key=str(pid),
        facts=facts,
        alive=True,
        host_pid=pid,
        owner_uid=Path(folder).stat().st_uid,
        read_at_ns=now_ns,
        ended_ns=None,
        events=NO_RECORDS,
        lost_events=0,
        phase_ns={},
        steps=0,
        samples=0,
        epoch=None,
    )

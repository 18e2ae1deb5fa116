"""One GPU from tick to tick: its ledger, its newest answer, and whether it still answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gpumon.core.ledger import GpuLedger
from gpumon.core.sample import BusySample, GpuSample
from gpumon.core.settings import DetectorSettings
from gpumon.core.sharing import SharedIdle, merge_parts, share_idle
from gpumon.core.state import GpuState
from gpumon.core.verdicts import judge
from gpumon.pipeline.runs import Run

_RECENT_SAMPLES = 256
_new = tuple.__new__
_NOTHING_SHARED = SharedIdle({}, 0, 0)


class GpuTracker:
    """Settles one GPU's samples, with the phases of the runs on it.

    Attributes:
        newest: What the GPU said last.
        ledger: Its time, settled.
    """

    __slots__ = (
        "_answered_at_ns", "_had_runs", "_has_peers", "_recent", "_settings", "ledger",
        "newest",
    )  # fmt: skip

    def __init__(self, first: GpuSample, settings: DetectorSettings) -> None:
        self._settings = settings
        self.ledger = GpuLedger(settings)
        self.newest = first
        self._answered_at_ns: int | None = None
        self._had_runs = False
        self._has_peers = False  # only then is it worth remembering samples
        self._recent: deque[BusySample] = deque(maxlen=_RECENT_SAMPLES)

    def hear(self, sample: GpuSample, at_ns: int) -> None:
        """Note what the GPU said, before anything is settled."""
        self.newest = sample
        if sample.error is None:
            self._answered_at_ns = at_ns
        if self._has_peers:
            self._recent.extend(sample.busy)

    def take(self, sample: GpuSample, at_ns: int) -> None:
        """Note what the GPU said and settle it: there are no runs."""
        ledger, processes = self.ledger, sample.processes
        self.newest = sample
        if sample.error is None:
            self._answered_at_ns = at_ns
        if self._had_runs:
            self._had_runs = self._has_peers = False
            ledger.run_waits(False)
        if sample.busy:
            ledger.observe(sample.busy)
        if not (processes and ledger.job_named_process):  # else it is known already
            ledger.processes_seen(None if processes is None else bool(processes))

    def busy_ns_within(self, start_ns: int, end_ns: int) -> int:
        """Busy time in a window, as far as it is remembered; the rest at the same ratio."""
        busy_ns = known_ns = 0.0
        for sample in self._recent:
            inside_ns = min(sample.end_ns, end_ns) - max(sample.start_ns, start_ns)
            if inside_ns > 0:
                busy_ns += inside_ns * sample.busy_ratio
                known_ns += inside_ns
        return round(busy_ns * (end_ns - start_ns) / known_ns) if known_ns else 0

    def settle(self, runs: tuple[Run, ...], peers: Sequence[GpuTracker]) -> None:
        """Settle the samples of this tick.

        Args:
            runs: Runs that may be on this GPU, alive or ended a moment ago.
            peers: Other GPUs of the same jobs, which have heard theirs.
        """
        ledger, newest = self.ledger, self.newest
        # Also for a run that has ended: these samples may be older than its end.
        ledger.run_waits(bool(runs))
        self._had_runs, self._has_peers = True, bool(peers)
        waiting = any(run.ended_ns is None for run in runs)
        if runs:
            for sample in newest.busy:
                ledger.observe_shared(sample, self._shared(sample, runs, peers))
            self._close(runs)
        elif newest.busy:
            ledger.observe(newest.busy)
        processes = newest.processes
        ledger.processes_seen(None if processes is None else bool(processes) or waiting)

    def state(self, now_ns: int, silence_ns: int) -> GpuState:
        """The GPU as outlets show it; silent for ``silence_ns`` means absent."""
        newest, ledger, answered_ns = self.newest, self.ledger, self._answered_at_ns
        totals, last_ns = ledger.snapshot(), ledger.last_end_ns
        return _new(  # not its own constructor: half the time
            GpuState,
            (
                newest.device,
                totals,
                judge(totals, self._settings),
                newest if newest.error is None else None,
                answered_ns is not None and now_ns - answered_ns <= silence_ns,
                last_ns if last_ns >= 0 else None,
                ledger.resolution_ns or None,
                newest.error,
            ),
        )

    def _shared(
        self, sample: BusySample, runs: tuple[Run, ...], peers: Sequence[GpuTracker]
    ) -> SharedIdle:
        start_ns, end_ns, busy_ratio = sample
        length_ns = end_ns - start_ns
        parts = []
        for run in runs:
            covered_ns = run.timeline.covered_ns(start_ns, end_ns)
            if covered_ns <= 0:
                continue
            if busy_ratio > self._settings.active_above:
                run.used_uuids.add(self.newest.device.uuid)
            if self.newest.device.uuid in run.used_uuids:
                parts.append((run.timeline.parts(start_ns, end_ns), covered_ns))
        if not parts:
            return _NOTHING_SHARED
        window = parts[0][0] if len(parts) == 1 else merge_parts(parts, length_ns)
        busy_ns = round(length_ns * busy_ratio)
        peer_ns = max((peer.busy_ns_within(start_ns, end_ns) for peer in peers), default=0)
        return share_idle(
            length_ns - busy_ns,
            window,
            peer_excess_ns=max(0, peer_ns - busy_ns),
            wholly_idle=busy_ratio <= self._settings.active_above,
        )

    def _close(self, runs: tuple[Run, ...]) -> None:
        # A run's process is gone with its lock: unless somebody else holds
        # the GPU, what follows the run belongs to no job.
        over = [
            run
            for run in runs
            if run.ended_ns is not None
            and run.ended_ns <= self.ledger.last_end_ns
            and self.newest.device.uuid not in run.closed_uuids
        ]
        for run in over:
            run.closed_uuids.add(self.newest.device.uuid)
        uuid = self.newest.device.uuid
        if any(uuid in run.used_uuids for run in over) and not self._is_held(runs):
            self.ledger.end_job()

    def _is_held(self, runs: tuple[Run, ...]) -> bool:
        """Whether somebody is at work here; who is only about to be begins a job of its own."""
        living = [run for run in runs if run.ended_ns is None]
        starting = [run for run in living if self.newest.device.uuid not in run.used_uuids]
        pids = {run.reading.host_pid for run in starting}
        others = [process for process in self.newest.processes or () if process.pid not in pids]
        return len(starting) < len(living) or bool(others)

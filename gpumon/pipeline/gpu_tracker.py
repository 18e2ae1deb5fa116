"""One GPU from tick to tick: its ledger, its newest answer, and whether it still answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gpumon.core.ledger import GpuLedger
from gpumon.core.sample import BusySample, GpuSample
from gpumon.core.settings import DetectorSettings
from gpumon.core.sharing import SharedIdle, share_idle
from gpumon.core.state import GpuState
from gpumon.core.timeline import merge_parts
from gpumon.core.verdicts import judge
from gpumon.pipeline.runs import Run

_RECENT_SAMPLES = 256
_NOTHING_SHARED = SharedIdle({}, 0, 0)


class GpuTracker:
    """Settles one GPU's samples, with the phases of the runs on it."""

    def __init__(self, first: GpuSample, settings: DetectorSettings) -> None:
        self._settings = settings
        self._ledger = GpuLedger(settings)
        self._newest = first
        self._answered_at_ns: int | None = None
        self._resolution_ns: int | None = None
        self._has_peers = False  # only then is it worth remembering samples
        self._recent: deque[BusySample] = deque(maxlen=_RECENT_SAMPLES)

    @property
    def newest(self) -> GpuSample:
        """What the GPU said last."""
        return self._newest

    @property
    def rejected(self) -> int:
        """Samples that could not be taken so far."""
        return self._ledger.rejected

    @property
    def last_end_ns(self) -> int:
        """Stamp up to which time is taken; -1 before the first sample."""
        return self._ledger.last_end_ns

    def hear(self, sample: GpuSample, at_ns: int) -> None:
        """Note what the GPU said, before anything is settled."""
        self._newest = sample
        if sample.error is None:
            self._answered_at_ns = at_ns
        if sample.busy:
            newest = sample.busy[-1]
            self._resolution_ns = newest.end_ns - newest.start_ns
            if self._has_peers:
                self._recent.extend(sample.busy)

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
        samples = self._newest.busy
        self._has_peers = bool(peers)
        waiting = any(run.ended_ns is None for run in runs)
        # Also for a run that has ended: these samples may be older than its end.
        self._ledger.run_waits(bool(runs))
        if runs:
            for sample in samples:
                self._ledger.observe_shared(sample, self._shared(sample, runs, peers))
            self._close(runs)
        elif samples:
            self._ledger.observe(samples)
        processes = self._newest.processes
        self._ledger.processes_seen(None if processes is None else bool(processes) or waiting)

    def state(self, now_ns: int, silence_ns: int) -> GpuState:
        """The GPU as outlets show it; silent for ``silence_ns`` means absent."""
        answered_ns = self._answered_at_ns
        totals = self._ledger.snapshot()
        last_ns = self._ledger.last_end_ns
        return GpuState(
            device=self._newest.device,
            totals=totals,
            verdict=judge(totals, self._settings),
            latest=self._newest if self._newest.error is None else None,
            present=answered_ns is not None and now_ns - answered_ns <= silence_ns,
            last_sample_at_ns=last_ns if last_ns >= 0 else None,
            resolution_ns=self._resolution_ns,
            error=self._newest.error,
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
                run.used_uuids.add(self._newest.device.uuid)
            if self._newest.device.uuid in run.used_uuids:
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
            and run.ended_ns <= self._ledger.last_end_ns
            and self._newest.device.uuid not in run.closed_uuids
        ]
        for run in over:
            run.closed_uuids.add(self._newest.device.uuid)
        still_held = any(run.ended_ns is None for run in runs) or self._newest.processes
        if not still_held and any(self._newest.device.uuid in run.used_uuids for run in over):
            self._ledger.end_job()

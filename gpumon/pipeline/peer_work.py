"""How much longer the other GPUs of a job work than one GPU, in the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.rank_wait import LastingExcess
from gpumon.core.attribution.idle_sharing import WindowParts, hide_input_wait
from gpumon.core.sample import BusySample
from gpumon.pipeline.tracked_run import TrackedRun

_RECENT_SAMPLES: Final = 256
_KEPT_OF_WORK: Final = 0.9
"""What is left of the weight of busy time with each further tick."""
_INPUT: Final = "input"


class Peer(Protocol):
    """Another GPU of the same job."""

    ledger: GpuLedger

    @property
    def uuid(self) -> str: ...

    def busy_ns_within(self, start_ns: int, end_ns: int) -> int | None:
        """Estimate its busy time in a window; ``None``: nothing of it is known."""


class PeerWork:
    """The recent work of one GPU compared with that of its peers.

    Attributes:
        late_peer: The run of its job that is late now; ``None``: none is.
        worked_ns: Recent busy time, while it works for a job of several GPUs; older time counts
            for less.
        spun_ns: For how long it read as busy though its run's work on the device was done.
    """

    def __init__(self) -> None:
        self.late_peer: TrackedRun | None = None
        self.worked_ns = 0.0
        self.spun_ns = 0
        self._recent: deque[BusySample] = deque(maxlen=_RECENT_SAMPLES)
        self._excess = LastingExcess()
        self._carried_excess_ns = 0  # peers' lead that no idle time explains yet

    def observe(self, samples: Sequence[BusySample]) -> None:
        self._recent.extend(samples)
        busy_ns = sum((end_ns - start_ns) * ratio for start_ns, end_ns, ratio in samples)
        self.worked_ns = _KEPT_OF_WORK * self.worked_ns + busy_ns

    def busy_ns_within(
        self, start_ns: int, end_ns: int, newest: Sequence[BusySample]
    ) -> int | None:
        """Estimate this GPU's busy time in a window; ``None``: nothing of it is known.

        What is not known yet is taken to be like the rest, or like the sample just before.

        Args:
            start_ns: Where the window begins.
            end_ns: Where it ends.
            newest: This tick's samples, for a GPU that had no peers until now.
        """
        busy_ns = known_ns = 0.0
        for sample in reversed(self._recent or newest):
            if sample.end_ns <= start_ns:
                if not known_ns and start_ns - sample.end_ns < sample.end_ns - sample.start_ns:
                    return round(sample.busy_ratio * (end_ns - start_ns))
                break
            inside_ns = min(sample.end_ns, end_ns) - max(sample.start_ns, start_ns)
            if inside_ns > 0:
                busy_ns += inside_ns * sample.busy_ratio
                known_ns += inside_ns
        return round(busy_ns * (end_ns - start_ns) / known_ns) if known_ns else None

    def leads_ns(self, sample: BusySample, peers: Sequence[Peer]) -> dict[str, int]:
        """Return how much longer each peer was busy than this GPU, by UUID; 0 where it was not."""
        own_ns, leads_ns = sample.busy_ns, {}
        for peer in peers:
            peer_ns = peer.busy_ns_within(sample.start_ns, sample.end_ns)
            if peer_ns is not None:
                uuid, most_ns = peer.uuid, max(sample.length_ns, peer.ledger.resolution_ns)
                leads_ns[uuid] = self._excess.of(uuid, peer_ns - own_ns, most_ns)
        return leads_ns

    def excess_ns(
        self, sample: BusySample, window: WindowParts, idle_ns: int, leads_ns: Mapping[str, int]
    ) -> int:
        """Return how long this GPU may have waited for a peer, with the excess carried over."""
        lead_ns = max(leads_ns.values(), default=0)
        return self._carried_excess_ns + lead_ns + self._late_ns(sample, window, idle_ns)

    def _late_ns(self, sample: BusySample, window: WindowParts, idle_ns: int) -> int:
        """How much longer than this run the late rank of its job was in a wait of its own."""
        own_ns = sum(window.waits.values())
        if self.late_peer is None or idle_ns <= own_ns:
            return 0
        parts = self.late_peer.timeline.parts(sample.start_ns, sample.end_ns)
        return max(0, sum(parts.waits.values()) + parts.validation_ns - own_ns)

    def carry_excess(self, excess_ns: int, imbalance_ns: int, length_ns: int) -> None:
        """Carry the excess over idle time to the next window."""
        self._carried_excess_ns = min(excess_ns - imbalance_ns, length_ns)

    def hide_input_wait(
        self, window: WindowParts, sample: BusySample, leads_ns: Mapping[str, int], run: TrackedRun
    ) -> None:
        """Cap input waits at the time all its GPUs were idle; modifies ``window``."""
        lead_ns = max(ns for uuid, ns in leads_ns.items() if uuid in run.used_uuids)
        all_idle_ns = max(0, sample.idle_ns - lead_ns)
        surplus_ns = self._excess.of(_INPUT, window.input_wait_ns - all_idle_ns, sample.length_ns)
        hide_input_wait(window, surplus_ns)

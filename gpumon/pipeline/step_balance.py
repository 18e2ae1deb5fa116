"""How busy each GPU of a run is in its training steps, since its ratios last changed."""

from __future__ import annotations

from gpumon.core.ring_events import RingKind, RingReading
from gpumon.core.settings import DEFAULT_SETTINGS

_LEAST_STEP_NS = DEFAULT_SETTINGS.advice.min_step_ns


class StepBalance:
    """Of one run. Windows that began under other ratios are left out."""

    __slots__ = ("_changed_at_ns", "_ratio_changes", "_shares", "_times_ns")

    def __init__(self) -> None:
        self._times_ns: dict[str, tuple[int, int]] = {}  # in steps, and busy of it; by UUID
        self._shares: dict[str, float] = {}
        self._ratio_changes = 0
        self._changed_at_ns = 0

    def take(self, reading: RingReading) -> None:
        """Begin anew where the ring tells of other shares."""
        facts = reading.facts
        if facts.ratio_changes == self._ratio_changes and facts.shares == self._shares:
            return
        self._ratio_changes, self._shares = facts.ratio_changes, facts.shares
        self._times_ns = {}
        self._changed_at_ns = next(
            (
                event.at_ns
                for event in reversed(reading.events)
                if event.kind is RingKind.EVENT and event.value == facts.ratio_changes
            ),
            reading.read_at_ns,
        )

    def add(self, uuid: str, start_ns: int, step_ns: int, busy_ns: int) -> None:
        """Count one window of a GPU.

        Args:
            uuid: The GPU's.
            start_ns: When the window began.
            step_ns: How much of it lay in training steps.
            busy_ns: How much of that the GPU was busy.
        """
        if step_ns > 0 and start_ns >= self._changed_at_ns:
            before_ns, before_busy_ns = self._times_ns.get(uuid, (0, 0))
            self._times_ns[uuid] = before_ns + step_ns, before_busy_ns + busy_ns

    def forget(self, uuid: str) -> None:
        """That GPU does not count for the run."""
        self._times_ns.pop(uuid, None)

    @property
    def busy_ratios(self) -> dict[str, float]:
        """The busy part, 0 to 1, of the time in training steps, by UUID of those known."""
        return {
            uuid: busy_ns / step_ns
            for uuid, (step_ns, busy_ns) in sorted(self._times_ns.items())
            if step_ns >= _LEAST_STEP_NS
        }

"""Where the idle time of one GPU went, what is in use of it, and what nobody can tell yet."""

from __future__ import annotations

from gpumon.core.held_idle import HeldIdle
from gpumon.core.phase import IdleCause
from gpumon.core.settings import DetectorSettings


class IdleAccounts:
    """The sums a ledger keeps; the rules that fill them are the ledger's own."""

    __slots__ = (
        "_held", "_hidden_ns", "_high_ns", "_idle_ns", "_in_use_busy_ns", "_in_use_ns",
        "_inferred_ns", "_job_in_use_from_ns", "_job_low_from_ns", "_low_ns", "_pending_ns",
        "_resolved_ns", "_settings", "_unsure_busy_ns", "_unsure_low_ns", "_unsure_ns",
    )  # fmt: skip

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._idle_ns: dict[IdleCause, int] = {}
        self._held = HeldIdle()  # what phases say of pending time before the first use
        self._pending_ns = self._resolved_ns = self._inferred_ns = self._hidden_ns = 0
        self._in_use_ns = self._in_use_busy_ns = self._low_ns = self._high_ns = 0
        # Inactive time since the last active sample: in use only if another follows.
        self._unsure_ns = self._unsure_busy_ns = self._unsure_low_ns = 0
        self._job_in_use_from_ns = self._job_low_from_ns = 0

    def _count_in_use(self, busy_ratio: float, length_ns: int, busy_ns: int) -> None:
        self._in_use_ns += length_ns
        self._in_use_busy_ns += busy_ns
        if busy_ratio < self._settings.low_below:
            self._low_ns += length_ns
        elif busy_ratio > self._settings.high_above:
            self._high_ns += length_ns

    def _job_low_share(self) -> float:
        in_use_ns = self._in_use_ns - self._job_in_use_from_ns
        return (self._low_ns - self._job_low_from_ns) / in_use_ns if in_use_ns else 0.0

    def _confirm_unsure(self) -> None:
        self._settle_pending(IdleCause.UNKNOWN)
        self._in_use_ns += self._unsure_ns
        self._in_use_busy_ns += self._unsure_busy_ns
        self._low_ns += self._unsure_low_ns
        self._forget_unsure()

    def _forget_unsure(self) -> None:
        self._unsure_ns = self._unsure_busy_ns = self._unsure_low_ns = 0

    def _settle_held(self) -> None:
        """The GPU is used at last: what phases explained until then was lost time of the job."""
        held, total_ns = self._held, self._held.total_ns
        for cause, amount_ns in held.idle_ns.items():
            self._add_idle(cause, amount_ns)
        self._pending_ns -= total_ns
        self._in_use_ns += total_ns
        self._resolved_ns += held.resolved_ns
        self._inferred_ns += total_ns - held.resolved_ns
        self._hidden_ns += held.hidden_ns

    def _settle_pending(self, cause: IdleCause) -> None:
        if self._pending_ns:
            self._add_idle(cause, self._pending_ns)
            self._pending_ns = 0
        self._held.clear()

    def _add_idle(self, cause: IdleCause, amount_ns: int) -> None:
        self._idle_ns[cause] = self._idle_ns.get(cause, 0) + amount_ns

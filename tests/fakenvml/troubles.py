"""What can go wrong with the fake driver, and what was asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.fakenvml import codes
from tests.fakenvml.layout import FUNCTIONS, ControlAccess


class Troubles(ControlAccess):
    """Functions that fail or hang, GPUs that are lost, drivers that are loaded again."""

    def fail(self, function: str, code: int, *, gpu: int | None = None) -> None:
        """Let a function answer ``code``, for one GPU or for all; 0 ends it."""
        record = self.function(function)
        if gpu is None:
            record.error = code
        else:
            record.gpu_error[gpu] = code

    def delay(self, function: str, microseconds: int, *, gpu: int | None = None) -> None:
        """Let a function take that long; 0 also releases the calls that wait now."""
        record = self.function(function)
        if gpu is None:
            record.latency_us = microseconds
        else:
            record.gpu_latency_us[gpu] = microseconds

    def burn(self, call_us: Mapping[str, float]) -> None:
        """Let each call of these functions take so many CPU microseconds, and the others none.

        ``call_prices.CALL_US`` is what boards take.
        """
        for name in FUNCTIONS:
            self.function(name).burn_ns = round(1000 * call_us.get(name, 0))

    def waiting(self, function: str) -> int:
        """How many calls of the function are inside such a delay, or wait for an event, now."""
        return int(self.function(function).waiting)

    def lose(self, slot: int, code: int = codes.GPU_IS_LOST) -> None:
        """Every call on this GPU answers ``code``."""
        self.gpu(slot).error = code

    def find(self, slot: int) -> None:
        """The GPU answers again."""
        self.gpu(slot).error = codes.SUCCESS

    def fail_everything(self, code: int) -> None:
        """Every call but init and shutdown answers ``code``; 0 ends it."""
        self.control.general_error = code

    def reload_driver(self) -> None:
        """Handles and inits of before are void: 1 UNINITIALIZED until init is called again."""
        self.control.generation += 1

    def reset(self, slot: int) -> None:
        """The GPU starts again: its old handles are void, its counters begin at zero."""
        gpu = self.gpu(slot)
        gpu.handle_epoch += 1
        gpu.energy_mj = 0
        gpu.ecc_corrected_before += gpu.ecc_corrected
        gpu.ecc_uncorrected_before += gpu.ecc_uncorrected
        gpu.ecc_corrected = gpu.ecc_uncorrected = 0

    def reorder(self, slots: Sequence[int]) -> None:
        """Give the GPUs new indices: ``slots[i]`` becomes index ``i``; others are unplugged."""
        for index, slot in enumerate(slots):
            self.control.slot_of_index[index] = slot
        self.control.gpu_count = len(slots)

    # -- what was asked ----------------------------------------------------

    def calls(self, function: str) -> int:
        """How often a function was called since ``forget_calls``."""
        return int(self.function(function).calls)

    def all_calls(self) -> dict[str, int]:
        """The functions that were called, and how often."""
        counts = {name: self.calls(name) for name in FUNCTIONS}
        return {name: count for name, count in counts.items() if count}

    def seconds_inside(self) -> dict[str, float]:
        """What delays and CPU time of each function added up to, since ``forget_calls``."""
        spent_s = {name: self.function(name).inside_ns / 1e9 for name in FUNCTIONS}
        return {name: seconds for name, seconds in spent_s.items() if seconds}

    def forget_calls(self) -> None:
        """Set every counter to zero."""
        for name in FUNCTIONS:
            self.function(name).calls = self.function(name).inside_ns = 0

    @property
    def gpm_samples_held(self) -> int:
        """GPM samples that were allocated and not freed."""
        return int(self.control.gpm_allocated - self.control.gpm_freed)

    @property
    def event_sets_held(self) -> int:
        """Event sets that were created and not freed."""
        return int(self.control.event_sets_created - self.control.event_sets_freed)

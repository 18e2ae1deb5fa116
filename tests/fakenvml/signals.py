"""What the GPUs of the fake do: their waves, rings and clocks."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from tests.fakenvml.layout import RING, WAVE, ControlAccess, raw_value

WINDOW_S = 1 / 6
"""What the fake's utilisation windows last unless reported otherwise, in seconds."""


def clock_offset_us(clock_id: int) -> int:
    """Microseconds that this clock is ahead of the monotonic one."""
    return (time.clock_gettime_ns(clock_id) - time.monotonic_ns()) // 1000


class Signals(ControlAccess):
    """Waves and rings, the clock they follow, and the clock that stamps them."""

    def wave(
        self,
        slot: int,
        *,
        period_s: float,
        busy_ratio: float,
        phase_s: float = 0.0,
        window_s: float = WINDOW_S,
        dry_when_idle: bool = False,
    ) -> None:
        """Busy for a share of each period, then idle; no writer is needed.

        Args:
            slot: Which GPU.
            period_s: Length of one round, in seconds.
            busy_ratio: Share of it that is busy, 0 to 1.
            phase_s: How far into the round the origin lies, in seconds.
            window_s: What one sample covers, in seconds.
            dry_when_idle: Windows of 0 % are never put into the ring.
        """
        gpu = self.gpu(slot)
        gpu.signal = WAVE
        gpu.period_ns = round(period_s * 1e9)
        gpu.busy_ns = round(period_s * 1e9 * busy_ratio)
        gpu.phase_ns = round(phase_s * 1e9)
        gpu.window_ns = round(window_s * 1e9)
        gpu.dry_when_idle = dry_when_idle

    def busy_ns(self, slot: int, start_ns: int, end_ns: int, *, part: int | None = None) -> int:
        """The truth: nanoseconds of that stretch in which the GPU, or a part of it, was busy."""
        wave = self.gpu(slot) if part is None else self.gpu(slot).parts[part]

        def until(at_ns: int) -> int:
            rounds, within = divmod(at_ns - self.control.origin_ns + wave.phase_ns, wave.period_ns)
            return int(rounds * wave.busy_ns + min(within, wave.busy_ns))

        return until(end_ns) - until(start_ns)

    def ring(self, slot: int, entries: Sequence[tuple[int, float]]) -> None:
        """Replace the wave by these ``(stamp_us, value)``, oldest first.

        Values are written in the GPU's ``value_type``; set that before.
        """
        gpu = self.gpu(slot)
        gpu.signal = RING
        gpu.ring_count = 0
        self.push(slot, *entries)

    def push(self, slot: int, *entries: tuple[int, float]) -> None:
        """Add ``(stamp_us, value)`` to the end of an explicit ring, which keeps the newest 512."""
        gpu = self.gpu(slot)
        for stamp_us, value in entries:
            entry = gpu.ring[gpu.ring_count % len(gpu.ring)]
            entry.stamp_us = stamp_us
            entry.raw = raw_value(value, gpu.value_type)
            gpu.ring_count += 1

    def draw(self, slot: int, *, busy_watts: float, idle_watts: float | None = None) -> None:
        """The power while the wave is busy, and while it is idle (``None``: the same)."""
        gpu = self.gpu(slot)
        gpu.power_mw = round(busy_watts * 1000)
        gpu.idle_power_mw = 0 if idle_watts is None else round(idle_watts * 1000)

    # -- how the samples come ------------------------------------------------

    def scatter_windows(self, seed: int) -> None:
        """Let the windows of each GPU begin at a moment of its own."""
        chance = random.Random(seed)
        for slot in range(self.control.gpu_count):
            self.gpu(slot).window_phase_ns = chance.randrange(int(self.gpu(slot).window_ns))

    # -- a clock that the test moves -------------------------------------------

    def stop_clock(self, at_ns: int | None = None) -> int:
        """The driver's clock stands still, at ``at_ns`` or now, until ``advance`` moves it.

        Returns:
            Where it stands, in nanoseconds of CLOCK_MONOTONIC.
        """
        self.control.virtual_now_ns = at_ns or self.now_ns()
        return self.now_ns()

    def advance(self, seconds: float) -> int:
        """Move the stopped clock on; gives where it stands, in nanoseconds."""
        self.control.virtual_now_ns = self.now_ns() + round(seconds * 1e9)
        return self.now_ns()

    # -- which clock stamps the samples ------------------------------------

    def stamps_count(self, offset_us: int) -> None:
        """From now on, and for what is in the ring: stamp = monotonic us + offset."""
        self.control.offset_since_ns = 0
        self.control.stamp_offset_us = offset_us

    def stamps_jump(self, by_us: int) -> None:
        """The clock of the stamps is set; what is in the ring keeps its old stamps."""
        self.control.earlier_offset_us = self.control.stamp_offset_us
        self.control.stamp_offset_us += by_us
        self.control.offset_since_ns = self.now_ns()

    def stamp_us(self, monotonic_ns: int) -> int:
        """The stamp that the driver gives to this instant."""
        return int(monotonic_ns // 1000 + self.control.stamp_offset_us)

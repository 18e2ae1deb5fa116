"""A host that launches work on a device, on one clock, so that loops read as users write them.

The device works in order while the host continues. So the phase of the host is known for each idle
time of the device, which no driver shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind
from gpumon.core.sample import BusySample

NS_PER_MS: Final = 1_000_000
_ENTER_NS: Final = 2_000
_MIN_FACTOR: Final = 0.05

Span = tuple[int, int]
"""Start and end, in ns."""


class Rank:
    """One training process and its device.

    Attributes:
        now_ns: The time of the host.
        busy: Work of the device, in order, without overlap.
        events: Records of the host's tags.
        spun_ns: Time in which the device read as busy only because it waited for another rank.
    """

    def __init__(self, seed: int, jitter: float = 0.01) -> None:
        self._random = random.Random(seed)
        self._jitter = jitter
        self._free_ns = 0
        self._steps = 0
        self._phase = TrainingPhase.START_UP
        self.now_ns = 0
        self.spun_ns = 0
        self.busy: list[Span] = []
        self.events = [RingEvent(RingKind.ENTER, 0, self._phase, 0)]

    def work(self, ms: float) -> None:
        """The host computes or sleeps for about so long."""
        self.now_ns += self._about_ns(ms)

    def launch(self, ms: float) -> None:
        """Launch work of about so long; the host continues at once."""
        began_ns = max(self._free_ns, self.now_ns)
        self._free_ns = began_ns + self._about_ns(ms)
        self.busy.append((began_ns, self._free_ns))

    def synchronise(self, most_behind_ms: float = 0.0) -> None:
        """Wait until the device is at most so far behind."""
        self.now_ns = max(self.now_ns, self._free_ns - round(most_behind_ms * NS_PER_MS))

    @contextmanager
    def phase(self, phase: TrainingPhase | None) -> Iterator[None]:
        """A tag of the user's; ``None``: no tag."""
        if phase is None:
            yield
            return
        before = self._phase
        self._enter(phase)
        yield
        self._enter(TrainingPhase.OTHER if before is TrainingPhase.START_UP else before)

    def step(self) -> None:
        """One optimizer step is done."""
        self._steps += 1
        self.events.append(RingEvent(RingKind.STEP, self.now_ns, self._phase, self._steps))

    def meet(self, others_ready_ns: int, *, spins: bool) -> None:
        """Wait for the other ranks with the device, as a collective operation does."""
        ready_ns = max(self.now_ns, self._free_ns)
        waits_ns = others_ready_ns - ready_ns
        if spins and waits_ns > 0:
            self.busy.append((ready_ns, others_ready_ns))
            self.spun_ns += waits_ns
        self._free_ns = self.now_ns = max(ready_ns, others_ready_ns)

    def ready_ns(self) -> int:
        """When its device will have finished."""
        return max(self.now_ns, self._free_ns)

    def idle_ns(self, from_ns: int, until_ns: int) -> dict[TrainingPhase, int]:
        """The device's idle time, by the phase of its host."""
        idle: dict[TrainingPhase, int] = {}
        entered = [(event.at_ns, event.phase) for event in self.events if event.kind is _ENTER]
        ends_ns = [at_ns for at_ns, _ in entered[1:]] + [until_ns]
        first = 0
        for (start_ns, phase), end_ns in zip(entered, ends_ns, strict=True):
            start_ns, end_ns = max(start_ns, from_ns), min(end_ns, until_ns)
            if start_ns >= end_ns:
                continue
            while first < len(self.busy) and self.busy[first][1] <= start_ns:
                first += 1
            worked_ns = _worked_ns(self.busy, first, start_ns, end_ns)
            idle[phase] = idle.get(phase, 0) + end_ns - start_ns - worked_ns
        return idle

    def windows(self, grain_ns: int, first_ns: int) -> list[BusySample]:
        """The driver's samples: means in whole percent."""
        windows, first = [], 0
        for start_ns in range(first_ns, self.now_ns - grain_ns, grain_ns):
            end_ns = start_ns + grain_ns
            while first < len(self.busy) and self.busy[first][1] <= start_ns:
                first += 1
            worked_ns = _worked_ns(self.busy, first, start_ns, end_ns)
            windows.append(BusySample(start_ns, end_ns, round(100 * worked_ns / grain_ns) / 100))
        return windows

    def _enter(self, phase: TrainingPhase) -> None:
        self._phase = phase
        self.events.append(RingEvent(RingKind.ENTER, self.now_ns, phase, 0))
        self.now_ns += _ENTER_NS

    def _about_ns(self, ms: float) -> int:
        factor = max(_MIN_FACTOR, self._random.gauss(1, self._jitter))
        return round(ms * NS_PER_MS * factor)


_ENTER: Final = RingKind.ENTER


def _worked_ns(busy: Sequence[Span], first: int, start_ns: int, end_ns: int) -> int:
    worked_ns = 0
    while first < len(busy) and busy[first][0] < end_ns:
        began_ns, ended_ns = busy[first]
        worked_ns += min(ended_ns, end_ns) - max(began_ns, start_ns)
        first += 1
    return worked_ns

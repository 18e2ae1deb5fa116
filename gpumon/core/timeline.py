"""What one training process did when: its ring's records, on the clock of the GPU samples."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from gpumon.core.phase import STEP_PHASES, IdleCause, TrainingMode, TrainingPhase, cause_of
from gpumon.core.ring_events import RingEvent, RingKind
from gpumon.core.sharing import WindowParts

_MAX_SPANS = 65_536
_MODES = {mode.value: mode for mode in TrainingMode}


class _Label(NamedTuple):
    """What a span stands for: the cause of its idle time, and how that is shared."""

    cause: IdleCause
    is_step: bool
    is_validation: bool


def _label(phase: TrainingPhase, mode: TrainingMode) -> _Label:
    cause = cause_of(phase, mode)
    is_step = phase in STEP_PHASES and mode is TrainingMode.TRAIN
    return _Label(cause, is_step, cause is IdleCause.VALIDATION)


_LABELS = {(phase, mode): _label(phase, mode) for phase in TrainingPhase for mode in TrainingMode}


class PhaseTimeline:
    """The recent phases of one run. Each lasts until the next one begins.

    Where the trainer reports the end of its steps on the device, the time in
    which the device had nothing left to do is kept too: only that exposes a
    wait of the host.
    """

    def __init__(self) -> None:
        self._starts_ns: list[int] = []
        self._labels: list[_Label] = []
        self._amounts: dict[int, dict[IdleCause, int]] = {}  # by start of the span
        self._known_until_ns = 0
        self._has_marks = False
        self._steps_done = self._steps_begun = self._steps_counted = 0
        self._idle_from_ns: int | None = None
        self._drained: list[tuple[int, int]] = []  # the device had no work, oldest first

    def extend(self, events: Iterable[RingEvent], known_until_ns: int) -> None:
        """Take new records; up to ``known_until_ns`` nothing else will turn up.

        Records of several threads may be out of order by a little: they are
        put in order here.
        """
        for event in sorted(events, key=_when):
            if event.kind is RingKind.ENTER:
                self._enter(event)
            elif event.kind is RingKind.AMOUNT and self._starts_ns:
                amounts = self._amounts.setdefault(self._starts_ns[-1], {})
                cause = cause_of(event.phase)
                amounts[cause] = amounts.get(cause, 0) + event.value
            elif event.kind is RingKind.STEP:
                self._steps_counted = event.value
                self._steps_begun = max(self._steps_begun, event.value)
            elif event.kind is RingKind.DEVICE_DONE:
                self._device_done(event)
        self._known_until_ns = max(self._known_until_ns, known_until_ns)
        if len(self._starts_ns) > _MAX_SPANS:
            self.forget_before(self._starts_ns[-_MAX_SPANS])

    def forget_before(self, time_ns: int) -> None:
        """Let go of what ended before ``time_ns``."""
        keep_from = max(0, bisect_right(self._starts_ns, time_ns) - 1)
        for start_ns in self._starts_ns[:keep_from]:
            self._amounts.pop(start_ns, None)
        del self._starts_ns[:keep_from], self._labels[:keep_from]
        old = bisect_left(self._drained, time_ns, key=_end)
        del self._drained[:old]

    def covered_ns(self, start_ns: int, end_ns: int) -> int:
        """How much of the window lies in any phase at all."""
        if not self._starts_ns:
            return 0
        return max(0, min(end_ns, self._known_until_ns) - max(start_ns, self._starts_ns[0]))

    def parts(self, start_ns: int, end_ns: int) -> WindowParts:
        """What the run did between two instants."""
        parts = WindowParts(uncovered_ns=end_ns - start_ns - self.covered_ns(start_ns, end_ns))
        end_ns = min(end_ns, self._known_until_ns)
        position = max(0, bisect_right(self._starts_ns, start_ns) - 1)
        while position < len(self._starts_ns) and self._starts_ns[position] < end_ns:
            span_start_ns = self._starts_ns[position]
            after = position + 1
            span_end_ns = (
                self._starts_ns[after] if after < len(self._starts_ns) else self._known_until_ns
            )
            inside = max(span_start_ns, start_ns), min(span_end_ns, end_ns)
            if inside[1] > inside[0]:
                self._add_span(parts, position, inside, span_end_ns - span_start_ns)
            position = after
        return parts

    def _enter(self, event: RingEvent) -> None:
        mode = _MODES.get(event.value, TrainingMode.TRAIN)
        start_ns = max(event.at_ns, self._starts_ns[-1] if self._starts_ns else 0)
        label = _LABELS[event.phase, mode]
        if self._starts_ns and self._starts_ns[-1] == start_ns:
            self._labels[-1] = label
        else:
            self._starts_ns.append(start_ns)
            self._labels.append(label)
        if event.phase is TrainingPhase.TRAIN_STEP and mode is TrainingMode.TRAIN:
            # A tag nested in a step enters it again: that is no further step.
            self._steps_begun = max(self._steps_begun, self._steps_counted + 1)
            if self._idle_from_ns is not None:
                # Disjoint and in order, whatever stamps a ring may carry.
                from_ns = max(self._idle_from_ns, self._drained[-1][1] if self._drained else 0)
                if start_ns > from_ns:
                    self._drained.append((from_ns, start_ns))
                self._idle_from_ns = None

    def _device_done(self, event: RingEvent) -> None:
        self._has_marks = True
        self._steps_done = max(self._steps_done, event.value)
        if self._steps_done >= self._steps_begun and self._idle_from_ns is None:
            self._idle_from_ns = event.at_ns

    def _add_span(
        self, parts: WindowParts, position: int, inside: tuple[int, int], span_ns: int
    ) -> None:
        label = self._labels[position]
        length_ns = inside[1] - inside[0]
        for cause, amount_ns in self._amounts.get(self._starts_ns[position], {}).items():
            inner_ns = min(length_ns, amount_ns * (inside[1] - inside[0]) // max(span_ns, 1))
            parts.waits[cause] = parts.waits.get(cause, 0) + inner_ns
            length_ns -= inner_ns
        if label.is_step:
            parts.step_ns += length_ns
        elif label.is_validation:
            parts.validation_ns += length_ns
        else:
            exposed_ns = self._exposed_ns(*inside) if self._has_marks else length_ns
            exposed_ns = min(exposed_ns, length_ns)
            parts.waits[label.cause] = parts.waits.get(label.cause, 0) + exposed_ns
            if label.cause is IdleCause.INPUT_WAIT:
                parts.hidden_input_wait_ns += length_ns - exposed_ns
            parts.step_ns += length_ns - exposed_ns  # the device still had work

    def _exposed_ns(self, start_ns: int, end_ns: int) -> int:
        exposed_ns = 0
        if self._idle_from_ns is not None:
            exposed_ns += max(0, end_ns - max(start_ns, self._idle_from_ns))
        for position in range(bisect_right(self._drained, start_ns, key=_end), len(self._drained)):
            drained_start_ns, drained_end_ns = self._drained[position]
            if drained_start_ns >= end_ns:
                break
            exposed_ns += min(end_ns, drained_end_ns) - max(start_ns, drained_start_ns)
        return exposed_ns


def _when(event: RingEvent) -> int:
    return event.at_ns


def _end(span: tuple[int, int]) -> int:
    return span[1]


def merge_parts(parts: list[tuple[WindowParts, int]], window_ns: int) -> WindowParts:
    """What several runs on one GPU did in one window: idle time is split between them.

    Args:
        parts: Each run's parts, and how much of the window it covers.
        window_ns: Length of the window.

    Returns:
        Parts that together cover no more than the window.
    """
    covered_ns = sum(covered for _, covered in parts)
    longest_ns = max((covered for _, covered in parts), default=0)
    merged = WindowParts(uncovered_ns=window_ns - longest_ns)
    if covered_ns == 0:
        return merged
    for part, _ in parts:
        for cause, length_ns in part.waits.items():
            share_ns = length_ns * longest_ns // covered_ns
            merged.waits[cause] = merged.waits.get(cause, 0) + share_ns
        merged.validation_ns += part.validation_ns * longest_ns // covered_ns
        merged.step_ns += part.step_ns * longest_ns // covered_ns
        merged.hidden_input_wait_ns += part.hidden_input_wait_ns * longest_ns // covered_ns
    return merged

"""Timeline of one run: its ring's records on the clock of the GPU samples."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import compress, pairwise
from operator import attrgetter, itemgetter
from typing import Final

from gpumon.core.attribution.first_waits import NEVER, EpochStarts, FirstBatch
from gpumon.core.attribution.idle_sharing import WindowParts
from gpumon.core.attribution.span_labels import (
    INPUT_WAIT_CODE,
    LABELS,
    START_UP_CODE,
    SUSPENDED_CODE,
    TRAIN_STEP_CODE,
    add_length,
    codes_of,
)
from gpumon.core.phase import PHASE_NUMBER, PHASES, IdleCause, TrainingPhase, cause_of
from gpumon.core.ring_format.events import TRAINING_OVER, RingEvent, RingKind, RingRecords

_STEP_CODES: Final = tuple(
    PHASE_NUMBER[phase] for phase in (TrainingPhase.TRAIN_STEP, TrainingPhase.DEVICE_SYNC)
)
_MAX_SPANS = 65_536
_MAX_BEHIND: Final = 64
"""If a device seems to be more steps behind its host, its marks have stopped."""
SEVERAL: Final = -1
"""No code of a span."""
_WITHOUT_STEPS: Final = frozenset({TrainingPhase.BETWEEN_EPOCHS, TrainingPhase.OTHER})


class PhaseTimeline:
    """The recent phases of one run. Each lasts until the next one begins.

    If the trainer marks the ends of its steps on the device, the timeline also keeps the time in
    which the device had nothing left to do: only then does a wait of the host matter.

    Attributes:
        first_input_wait_ns: Wait for the first batch (``FirstBatch``);
            ``None``: the start of the run is unknown.
        has_marks: Whether the ends of steps on the device are known.
        is_marked_over: Whether the run marked training as over, and recorded nothing since.
        keeps_steps: Whether to remember when steps were counted.
        tags_waits: Whether the run has tagged a wait for input: then it waits at no other time.
    """

    def __init__(self) -> None:
        self._starts_ns: list[int] = []
        self._labels = (
            bytearray()
        )  # a byte a span: number of its phase, with its mode in the upper bits
        self._amounts: dict[int, dict[IdleCause, int]] = {}  # by start of the span
        self._before_stop, self._was_suspended = 0, False
        self._known_until_ns = 0
        self.is_marked_over = self.has_marks = False
        self._first_batch = FirstBatch()
        self._first_batch_seen_ns = -1  # start of the newest phase that it was given
        self._first_wait_counted_ns = 0
        self.first_input_wait_ns: int | None = None
        self._steps_done = self._steps_begun = self._steps_counted = self._last_step_ns = 0
        self._first_step_ns: int | None = None
        self._entered_step = False  # and has counted none since
        self._idle_from_ns: int | None = None
        self._steps_ns: list[int] = []  # times at which they were counted, oldest first
        self.keeps_steps = True
        self._has_step_phase = False
        self._distrusts_marks = False
        self.tags_waits = False
        self._epochs = EpochStarts()
        self._drained: list[tuple[int, int]] = []  # when the device had no work, oldest first

    def extend(self, records: RingRecords, known_until_ns: int) -> None:
        """Add new records; no others before ``known_until_ns`` will follow.

        Records of several threads may be slightly out of order.
        """
        if records:  # most rings have none in most ticks
            self._ingest(self._in_order(records))
        before_ns = self._known_until_ns
        self._known_until_ns = max(before_ns, known_until_ns)
        if self._first_batch.over_ns == NEVER and self._starts_ns:
            is_followed = self._starts_ns[-1] == self._first_batch_seen_ns
            if records or not is_followed or self.first_wait_since_ns is not None:
                self._follow_first_batch(before_ns)
        if len(self._starts_ns) > _MAX_SPANS:
            self.forget_before(self._starts_ns[-_MAX_SPANS])

    def suspend(self, from_ns: int) -> None:
        """Note that the process has been stopped since ``from_ns``."""
        if self._starts_ns and self._labels[-1] != SUSPENDED_CODE:
            self._before_stop, self._was_suspended = self._labels[-1], True
            self._starts_ns.append(max(from_ns, self._starts_ns[-1]))
            self._labels.append(SUSPENDED_CODE)

    def resume(self, at_ns: int) -> None:
        """Note that the process runs again, in the phase it was in, if it was stopped."""
        if self._labels and self._labels[-1] == SUSPENDED_CODE:
            self._starts_ns.append(max(at_ns, self._starts_ns[-1]))
            self._labels.append(self._before_stop)

    @property
    def suspended_since_ns(self) -> int | None:
        """Time since which the process cannot run; ``None``: it can."""
        is_suspended = self._labels and self._labels[-1] == SUSPENDED_CODE
        return self._starts_ns[-1] if is_suspended else None

    def suspended_ns(self, start_ns: int, end_ns: int) -> int:
        """For how long the process could not run between two times, as far as is remembered."""
        if not self._was_suspended:
            return 0
        return self._parts(start_ns, end_ns).waits.get(IdleCause.NOT_IN_USE, 0)

    @property
    def first_wait_since_ns(self) -> int | None:
        """Start of the wait for the first batch; ``None``: there is none now."""
        if self._first_batch.over_ns != NEVER or not self._labels:
            return None
        waits = LABELS[self._labels[-1]].cause is IdleCause.INPUT_WAIT
        return self._starts_ns[-1] if waits else None

    def forget_before(self, time_ns: int) -> None:
        keep_from = bisect_right(self._starts_ns, time_ns) - 1
        if keep_from > 0:
            kept_ns = self._starts_ns[keep_from]
            self._amounts = {at: own for at, own in self._amounts.items() if at >= kept_ns}
            del self._starts_ns[:keep_from], self._labels[:keep_from]
        if self._drained:
            del self._drained[: bisect_left(self._drained, time_ns, key=itemgetter(1))]
        if self._steps_ns:
            del self._steps_ns[: bisect_left(self._steps_ns, time_ns)]

    def distrust_marks(self) -> None:
        """Stop using marks of step ends: they contradict the driver."""
        self.has_marks, self._distrusts_marks = False, True

    @property
    def has_own_steps(self) -> bool:
        """Whether the run counts steps but tags none: then its untagged code is its step."""
        return self._steps_counted > 0 and not self._has_step_phase

    def spans(self, start_ns: int, end_ns: int) -> tuple[tuple[int, ...], bytes, bool] | None:
        """The phases of a window.

        Returns:
            Their starts and the end of the last; their codes; and whether the first
            begins with the window. ``None``: part of the window is not known.
        """
        starts_ns = self._starts_ns
        if not starts_ns or starts_ns[0] > start_ns or self._known_until_ns < end_ns:
            return None
        first = bisect_right(starts_ns, start_ns) - 1
        after = bisect_left(starts_ns, end_ns, lo=first)
        bounds_ns = (start_ns, *starts_ns[first + 1 : after], end_ns)
        return bounds_ns, bytes(self._labels[first:after]), starts_ns[first] == start_ns

    def steps_between(self, start_ns: int, end_ns: int) -> tuple[int, ...]:
        """Times at which steps were counted in a window, if these are kept."""
        first = bisect_left(self._steps_ns, start_ns)
        return tuple(self._steps_ns[first : bisect_left(self._steps_ns, end_ns, lo=first)])

    def has_amounts(self, start_ns: int, end_ns: int) -> bool:
        """Whether any phase of a window includes an amount of another one."""
        if not self._amounts:
            return False
        first = max(0, bisect_right(self._starts_ns, start_ns) - 1)
        after = bisect_left(self._starts_ns, end_ns, lo=first)
        return any(at_ns in self._amounts for at_ns in self._starts_ns[first:after])

    def covered_ns(self, start_ns: int, end_ns: int) -> int:
        """How much of the window lies in any phase."""
        if not self._starts_ns:
            return 0
        return max(0, min(end_ns, self._known_until_ns) - max(start_ns, self._starts_ns[0]))

    def sole_code(self, start_ns: int, end_ns: int) -> int:
        """Code of the newest span, if the entire window lies in it; else ``SEVERAL``.

        So it is, too, where the phase alone does not show what the time was spent on.
        """
        starts_ns = self._starts_ns
        if not starts_ns or starts_ns[-1] > start_ns or end_ns > self._known_until_ns:
            return SEVERAL
        if self._amounts or self.has_marks or (self._steps_counted and not self._has_step_phase):
            return SEVERAL
        code = self._labels[-1]
        is_input_wait = LABELS[code].cause is IdleCause.INPUT_WAIT
        return SEVERAL if is_input_wait and start_ns < self._first_batch.over_ns else code

    def is_known_in(self, start_ns: int, end_ns: int) -> bool:
        """Whether any of the window lies in any phase."""
        starts_ns, known_ns = self._starts_ns, self._known_until_ns
        return bool(starts_ns) and start_ns < known_ns and starts_ns[0] < min(end_ns, known_ns)

    def parts(self, start_ns: int, end_ns: int) -> WindowParts:
        """What the run did between two times."""
        parts, first_ns = self._parts(start_ns, end_ns), self._first_batch.over_ns
        if start_ns < first_ns and parts.input_wait_ns:
            before = parts if end_ns <= first_ns else self._parts(start_ns, first_ns)
            parts.first_input_wait_ns = before.input_wait_ns
            # Count no wait twice, such as one in a validation before the first step.
            parts.validation_input_wait_ns -= before.validation_input_wait_ns
            parts.epoch_input_wait_ns -= before.epoch_input_wait_ns
        return parts

    def _parts(self, start_ns: int, end_ns: int) -> WindowParts:
        covered_ns = self.covered_ns(start_ns, end_ns)
        parts = WindowParts(outside_ns=end_ns - start_ns - covered_ns)
        if not covered_ns:
            return parts
        starts_ns, end_ns = self._starts_ns, min(end_ns, self._known_until_ns)
        first = max(0, bisect_right(starts_ns, start_ns) - 1)
        after = bisect_left(starts_ns, end_ns, lo=first)
        bounds_ns = [max(starts_ns[first], start_ns), *starts_ns[first + 1 : after], end_ns]
        may_be_divided = self.has_marks or bool(self._amounts)
        lengths_ns: defaultdict[int, int] = defaultdict(int)
        for position, inside in enumerate(pairwise(bounds_ns), first):
            if may_be_divided and self._is_divided(position):
                self._add_span(parts, position, inside)
            else:
                lengths_ns[self._labels[position]] += inside[1] - inside[0]
        for code, length_ns in lengths_ns.items():
            add_length(parts, LABELS[code], length_ns)
        if parts.silent_ns and self.has_own_steps:
            parts.own_step_ns, parts.silent_ns = parts.silent_ns, 0
        return parts

    @property
    def open_since_ns(self) -> int:
        """Start of the newest phase: earlier ones are final."""
        return self._starts_ns[-1] if self._starts_ns else self._known_until_ns

    def over_since_ns(self, patience_ns: int) -> int | None:
        """Time since which training is over, though its process lives; ``None`` while it goes on.

        It is over if the run marked it, or recorded nothing for ``patience_ns``.
        """
        if not self._starts_ns or LABELS[self._labels[-1]].cause is not IdleCause.UNKNOWN:
            return None
        since_ns = max(self._starts_ns[-1], self._last_step_ns)
        is_silent = self._known_until_ns - since_ns > patience_ns
        return since_ns if self.is_marked_over or is_silent else None

    @property
    def awaits_activity(self) -> bool:
        """Whether ``note_activity`` may end the wait for the first batch."""
        first = self._first_batch
        return first.over_ns == NEVER and first.first_ended_ns is not None

    def note_activity(self, start_ns: int, end_ns: int) -> None:
        """Note that a GPU of the run was active, which ends the wait for the first batch."""
        first = self._first_batch
        ended_ns = first.first_ended_ns
        if not self.awaits_activity or ended_ns is None or end_ns <= ended_ns:
            return
        first.note_activity()
        # The ring may be newer than the samples: a later wait may have begun already.
        begin = bisect_left(self._starts_ns, max(start_ns, ended_ns))
        for at in range(begin, len(self._starts_ns)):
            if LABELS[self._labels[at]].cause is IdleCause.INPUT_WAIT:
                first.end(self._starts_ns[at])
                break
        if first.over_ns != NEVER:
            self._count_first_wait()

    def _follow_first_batch(self, from_ns: int) -> None:
        """Pass new phases and steps to ``FirstBatch``, and count the wait since."""
        first = self._first_batch
        if self.first_input_wait_ns is None:
            if self._labels[0] != START_UP_CODE:
                first.end(0)  # earlier records are lost, or there was no start
                return
            self.first_input_wait_ns, self._first_wait_counted_ns = 0, from_ns
        new = bisect_right(self._starts_ns, self._first_batch_seen_ns)
        for at in range(new, len(self._labels)):
            label, start_ns = LABELS[self._labels[at]], self._starts_ns[at]
            if self._first_step_ns is not None and self._first_step_ns <= start_ns:
                break
            first.enter(
                start_ns,
                is_input_wait=label.cause is IdleCause.INPUT_WAIT,
                is_step=label.is_step or label.is_validation,
            )
            self._first_batch_seen_ns = start_ns
            if first.over_ns != NEVER:
                break
        if self._first_step_ns is not None:
            first.end(self._first_step_ns)
        self._count_first_wait()

    def _count_first_wait(self) -> None:
        until_ns = min(self._known_until_ns, self._first_batch.counts_until_ns)
        if self.first_input_wait_ns is not None and until_ns > self._first_wait_counted_ns:
            waits_ns = self._parts(self._first_wait_counted_ns, until_ns).input_wait_ns
            self.first_input_wait_ns += waits_ns
            self._first_wait_counted_ns = until_ns

    def _in_order(self, records: RingRecords) -> RingRecords:
        """The records in order of their stamps, with no phase before a known one."""
        known_ns = self._starts_ns[-1] if self._starts_ns else 0
        if records.is_in_order and records.stamps_ns[0] >= known_ns:
            return records
        rows = sorted(records, key=attrgetter("at_ns"))
        return RingRecords.of(
            row._replace(at_ns=max(row.at_ns, known_ns)) if row.kind is RingKind.ENTER else row
            for row in rows
        )

    def _ingest(self, records: RingRecords) -> None:
        entered, codes = records.selected(RingKind.ENTER), codes_of(records)
        self.tags_waits = self.tags_waits or INPUT_WAIT_CODE in codes
        codes = self._epochs.mark_waits(records, codes, self._labels)
        under_way_ns = self._starts_ns[-1] if self._starts_ns else None
        self._starts_ns += compress(records.stamps_ns, entered)
        self._labels += codes
        for at in records.positions(RingKind.AMOUNT):
            last = entered.rfind(1, 0, at)
            start_ns = under_way_ns if last < 0 else records.stamps_ns[last]
            if start_ns is not None:
                self._add_amount(start_ns, PHASES[records.phases[at]], records.values[at])
        self._note_end(records)
        if self._first_step_ns is None and (at := records.kinds.find(RingKind.STEP)) >= 0:
            self._first_step_ns = records.stamps_ns[at]
        if self.keeps_steps and RingKind.STEP in records.kinds:
            self._steps_ns += compress(records.stamps_ns, records.selected(RingKind.STEP))
        if not self._has_step_phase:
            self._has_step_phase = any(code in codes for code in _STEP_CODES)
        has_marks = self.has_marks or RingKind.DEVICE_DONE in records.kinds
        if has_marks or self._has_first_step(records, codes):
            begun = iter(codes)
            for at in records.positions(RingKind.ENTER, RingKind.STEP, RingKind.DEVICE_DONE):
                self._follow_device(records[at], next(begun) if entered[at] else None)
            return
        # Without marks, only the number of steps that the device was given matters.
        newest_step = records.kinds.rfind(RingKind.STEP)
        if newest_step >= 0:
            self._count_steps(records.values[newest_step], records.stamps_ns[newest_step])
        begun_since = entered.count(1, newest_step + 1)
        if begun_since and TRAIN_STEP_CODE in codes[-begun_since:]:
            self._steps_begun = max(self._steps_begun, self._steps_counted + 1)

    def _note_end(self, records: RingRecords) -> None:
        ended = records.kinds.rfind(RingKind.EVENT)
        if records.kinds.rfind(RingKind.ENTER) > ended:
            self.is_marked_over = False
        elif ended >= 0 and records.values[ended] == TRAINING_OVER:
            self.is_marked_over = True

    def _has_first_step(self, records: RingRecords, codes: bytes) -> bool:
        """Whether these records show that the device had no work yet, or got its first."""
        if self._steps_begun:
            return False
        return START_UP_CODE in codes or TRAIN_STEP_CODE in codes or RingKind.STEP in records.kinds

    def _add_amount(self, start_ns: int, phase: TrainingPhase, amount_ns: int) -> None:
        amounts = self._amounts.setdefault(start_ns, {})
        cause = cause_of(phase)
        amounts[cause] = amounts.get(cause, 0) + amount_ns

    def _count_steps(self, counted: int, at_ns: int) -> None:
        if self.has_marks and counted - self._steps_done > _MAX_BEHIND:
            self.distrust_marks()
        self._steps_counted, self._last_step_ns = counted, at_ns
        self._steps_begun = max(self._steps_begun, counted)

    def _follow_device(self, event: RingEvent, code: int | None) -> None:
        if event.kind is RingKind.STEP:
            self._entered_step = False
            self._count_steps(event.value, event.at_ns)
        elif event.kind is RingKind.DEVICE_DONE:
            self._device_done(event)
        elif code == TRAIN_STEP_CODE:
            self._step_entered(event)
        else:
            is_start = code == START_UP_CODE and not self._steps_begun
            if is_start and self._idle_from_ns is None:
                self._idle_from_ns = event.at_ns  # the device has no work yet
            if self._entered_step and event.phase in _WITHOUT_STEPS:
                # The step raised, or the data ended: the device was given no work.
                self._steps_begun = self._steps_counted
                if self.has_marks and self._steps_done >= self._steps_begun:
                    self._idle_from_ns = event.at_ns
            self._entered_step = False

    def _step_entered(self, event: RingEvent) -> None:
        # A tag nested in a step enters it again, which is no further step.
        self._steps_begun = max(self._steps_begun, self._steps_counted + 1)
        self._entered_step = True
        if self._idle_from_ns is not None:
            # Keep intervals disjoint and in order, whatever the stamps of a ring.
            from_ns = max(self._idle_from_ns, self._drained[-1][1] if self._drained else 0)
            if event.at_ns > from_ns:
                self._drained.append((from_ns, event.at_ns))
            self._idle_from_ns = None

    def _device_done(self, event: RingEvent) -> None:
        self.has_marks = not self._distrusts_marks
        self._steps_done = max(self._steps_done, event.value)
        if self._steps_done >= self._steps_begun and self._idle_from_ns is None:
            self._idle_from_ns = event.at_ns

    def _is_divided(self, position: int) -> bool:
        """Whether part of that span does not belong to its phase."""
        is_felt_in_part = self.has_marks and LABELS[self._labels[position]].is_exposed_by_marks
        return is_felt_in_part or self._starts_ns[position] in self._amounts

    def _add_span(self, parts: WindowParts, position: int, inside: tuple[int, int]) -> None:
        starts_ns, after = self._starts_ns, position + 1
        span_end_ns = starts_ns[after] if after < len(starts_ns) else self._known_until_ns
        length_ns = whole_ns = inside[1] - inside[0]
        if length_ns <= 0:
            return
        span_ns = span_end_ns - starts_ns[position]
        label = LABELS[self._labels[position]]
        for cause, amount_ns in self._amounts.get(starts_ns[position], {}).items():
            inner_ns = min(length_ns, amount_ns * whole_ns // max(span_ns, 1))
            length_ns -= inner_ns
            if label.is_step and cause is IdleCause.INPUT_WAIT:
                parts.gross_input_wait_ns += inner_ns  # the step may have computed meanwhile
            else:
                parts.waits[cause] = parts.waits.get(cause, 0) + inner_ns
        if not (self.has_marks and label.is_exposed_by_marks):
            add_length(parts, label, length_ns)
            return
        exposed_ns = min(self._exposed_ns(*inside), length_ns)
        add_length(parts, label, exposed_ns)
        if label.cause is IdleCause.INPUT_WAIT:
            parts.hidden_input_wait_ns += length_ns - exposed_ns
        parts.step_ns += length_ns - exposed_ns  # the device still had work

    def drained_ns(self, start_ns: int, end_ns: int) -> int:
        """For how long the device had no work left; 0 without marks."""
        return self._exposed_ns(start_ns, end_ns) if self.has_marks else 0

    def _exposed_ns(self, start_ns: int, end_ns: int) -> int:
        exposed_ns = 0
        if self._idle_from_ns is not None:
            exposed_ns += max(0, end_ns - max(start_ns, self._idle_from_ns))
        first = bisect_right(self._drained, start_ns, key=itemgetter(1))
        for position in range(first, len(self._drained)):
            drained_start_ns, drained_end_ns = self._drained[position]
            if drained_start_ns >= end_ns:
                break
            exposed_ns += min(end_ns, drained_end_ns) - max(start_ns, drained_start_ns)
        return exposed_ns

"""Write one process's phases into its ring: a clock read and a few stores, never I/O."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import reduce
from itertools import count
from operator import xor
from struct import Struct
from time import monotonic_ns
from typing import Final

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from gpumon.core.ring_format.events import RingKind, RunFacts
from gpumon.core.ring_format.format import (
    KIND_SHIFT,
    MODE_SHIFT,
    PAGE_BYTES,
    RECORD_BYTES,
    RECORD_COUNT,
    RECORD_WORDS,
    SEQUENCE_SHIFT,
    T_PHASES,
    T_XOR,
    TOTALS_AT_WORDS,
    TOTALS_WORDS,
    WORD_HEAD,
    WORD_MASK,
    WORD_TOTALS_GENERATION,
)
from trainer_hooks.ring.mapped_file import RingMemory, publish

# Several words by one call; in the machine's own byte order, each is a single store.
_put_record: Final = Struct(f"@{RECORD_WORDS}Q").pack_into
_put_two_records: Final = Struct(f"@{2 * RECORD_WORDS}Q").pack_into
_put_totals: Final = Struct(f"@{TOTALS_WORDS}Q").pack_into
_TOTALS_AT_BYTES: Final = tuple(8 * at for at in TOTALS_AT_WORDS)
_NO_WORDS: Final = (0,) * (T_XOR - T_PHASES - len(PHASES))
"""Unused words of the totals."""

_IS_LASTING: Final = tuple(
    phase
    not in (
        TrainingPhase.INPUT_WAIT,
        TrainingPhase.HOST_TO_DEVICE,
        TrainingPhase.TRAIN_STEP,
        TrainingPhase.DEVICE_SYNC,
        TrainingPhase.CALLBACKS,
    )
    for phase in PHASES
)
"""By phase number: whether the phase is outside a step."""


START_UP: Final = PHASE_NUMBER[TrainingPhase.START_UP]

_SLOT_MASK: Final = RECORD_COUNT - 1
_ENTER: Final = RingKind.ENTER << KIND_SHIFT
_AMOUNT: Final = RingKind.AMOUNT << KIND_SHIFT
_DEVICE_DONE: Final = RingKind.DEVICE_DONE << KIND_SHIFT
_STEP: Final = RingKind.STEP << KIND_SHIFT
_SAMPLES: Final = RingKind.SAMPLES << KIND_SHIFT
_EPOCH: Final = RingKind.EPOCH << KIND_SHIFT
_EVENT: Final = RingKind.EVENT << KIND_SHIFT
_PHASE_MASK: Final = (1 << MODE_SHIFT) - 1

_REST_NS: Final = 10_000_000
"""Within steps the totals are published at most this often, as that takes longer than a record. A
killed process loses 10 ms at most."""
_writers: weakref.WeakSet[RingWriter] = weakref.WeakSet()


class RingWriter:
    """Writes one ring.

    One thread changes phases and counts steps; ``device_done`` may come from another. Nothing here
    raises or blocks: on the first error the writer reports it through ``on_trouble`` and stops. A
    forked child writes nothing: the ring and its lock are its parent's.

    Attributes:
        facts: Contents of the first page.
        enabled: Whether anything is written.
        span: The current phase and its mode: ``phase | mode << MODE_SHIFT``.
        since_ns: When it began, CLOCK_MONOTONIC, minus what was carved out of it since.
        steps: Training steps counted so far.
        samples: Samples counted so far.
    """

    def __init__(
        self,
        memory: RingMemory,
        facts: RunFacts,
        *,
        wall_ns: int = 0,
        on_trouble: Callable[[Exception], None] | None = None,
    ) -> None:
        """Begin in ``start_up``.

        Args:
            memory: A fresh ring.
            facts: Contents of its first page.
            wall_ns: Wall clock at ``facts.started_ns``.
            on_trouble: Called with the error that ended the writing.
        """
        self.facts = facts
        self.enabled = True
        self.span = START_UP
        self.steps = self.samples = 0
        self._memory = memory
        self._data = memory.data
        self._words = memory.words
        self._wall_ns = wall_ns
        self._on_trouble = on_trouble
        self._sequences = count()
        self._spent_ns = [0] * len(PHASES)
        self.since_ns = facts.started_ns
        self._epoch_plus_1 = self._generation = self._published_samples = 0
        self._due_ns = self._pending = 0
        self._put(_ENTER | START_UP, facts.started_ns, 0)
        self._publish(facts.started_ns)
        publish(memory)
        _writers.add(self)

    @property
    def present(self) -> tuple[int, int]:
        """Numbers of the current phase and its mode."""
        return self.span & _PHASE_MASK, self.span >> MODE_SHIFT

    def spent_ns(self, phase: int) -> int:
        """Return the nanoseconds in a phase so far, including the current one."""
        open_ns = monotonic_ns() - self.since_ns if self.present[0] == phase else 0
        return self._spent_ns[phase] + max(0, open_ns)

    def enter(
        self, phase: int, mode: int = 0, *, is_done: bool = False, is_brief: bool = False
    ) -> None:
        """End the current phase and begin another.

        Args:
            phase: Its number.
            mode: Number of the ``TrainingMode``.
            is_done: The device finished all steps so far at this time.
            is_brief: Another phase follows soon: the totals may lag, as within a step.
        """
        if not self.enabled:
            return
        try:
            mark = self._pending
            if mark and is_done:
                self._put_pending()
            now_ns = monotonic_ns()
            data, sequence, old = self._data, next(self._sequences), self.span & _PHASE_MASK
            if mark or is_done:
                self._pending, steps, following = 0, self.steps, next(self._sequences)
                first = sequence << SEQUENCE_SHIFT | (_DEVICE_DONE if is_done else mark) | old
                entry = following << SEQUENCE_SHIFT | _ENTER | phase
                slot = sequence & _SLOT_MASK
                if following == sequence + 1 and slot != _SLOT_MASK:
                    _put_two_records(
                        data, PAGE_BYTES + RECORD_BYTES * slot,
                        first, now_ns, steps, first ^ now_ns ^ steps,
                        entry, now_ns, mode, entry ^ now_ns ^ mode,
                    )  # fmt: skip
                else:  # another thread came between them, or the ring's end did
                    self._put_at(sequence, first, now_ns, steps)
                    self._put_at(following, entry, now_ns, mode)
                sequence = following
            else:
                first = sequence << SEQUENCE_SHIFT | _ENTER | phase
                at = PAGE_BYTES + RECORD_BYTES * (sequence & _SLOT_MASK)
                _put_record(data, at, first, now_ns, mode, first ^ now_ns ^ mode)
            self._words[WORD_HEAD] = sequence + 1
            spent_ns = now_ns - self.since_ns
            # Unless a signal handler has entered a phase since the clock was read.
            if spent_ns > 0:
                self.since_ns = now_ns
                self._spent_ns[old] += spent_ns
            self.span = phase | mode << MODE_SHIFT
            if now_ns >= self._due_ns or (_IS_LASTING[phase] and not is_brief):
                self._publish(now_ns)
        except Exception as error:  # noqa: BLE001 (training goes on, whatever happens here)
            self._give_up(error)

    def count(self, steps: int, samples: int) -> None:
        """Like ``step``, but cheaper: written, with its time, when the next phase is entered."""
        if self._pending:
            self._put_pending()
        self.steps += steps
        self.samples += samples
        self._pending = _STEP

    def step(self, steps: int = 1, samples: int = 0) -> None:
        """Count ``steps`` more training steps handed to the device, with ``samples`` samples."""
        if not self.enabled:
            return
        try:
            if self._pending:
                self._put_pending()
            now_ns, phase = monotonic_ns(), self.span & _PHASE_MASK
            self.steps += steps
            self._put(_STEP | phase, now_ns, self.steps)
            if samples:
                self._published_samples = self.samples = self.samples + samples
                self._put(_SAMPLES | phase, now_ns, self._published_samples)
            if now_ns >= self._due_ns:
                self._publish(now_ns)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def amount(self, phase: int, duration_ns: int) -> None:
        """Record that ``duration_ns`` of the current phase were really spent in ``phase``."""
        if not self.enabled:
            return
        try:
            now_ns = monotonic_ns()
            carved_ns = max(0, min(duration_ns, now_ns - self.since_ns))
            self._put(_AMOUNT | phase, now_ns, carved_ns)
            self.since_ns += carved_ns  # so that the phases still sum to the wall
            self._spent_ns[phase] += carved_ns
            self._publish(now_ns)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def epoch(self, epoch: int) -> None:
        """Begin epoch ``epoch``, counted from 0."""
        if not self.enabled:
            return
        try:
            now_ns = monotonic_ns()
            self._put(_EPOCH | self.span & _PHASE_MASK, now_ns, epoch)
            self._epoch_plus_1 = epoch + 1
            self._publish(now_ns)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def device_done(self, step: int, at_ns: int) -> None:
        """The device finished training step ``step`` at ``at_ns``. Callable from any thread."""
        self._mark(_DEVICE_DONE, at_ns, step)

    def event(self, value: int) -> None:
        """Record a mark whose meaning is the caller's."""
        self._mark(_EVENT, monotonic_ns(), value & WORD_MASK)

    def write_facts(self, facts: RunFacts) -> None:
        """Replace the facts in page 0; pid, boot and start stay as they are."""
        if not self.enabled:
            return
        try:
            self._memory.write_facts(facts, wall_ns=self._wall_ns)
            self.facts = facts
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def settle(self) -> None:
        """Bring the totals up to date with the records: nothing may follow for long."""
        if not self.enabled:
            return
        try:
            if self._pending:
                self._put_pending()
            self._publish(monotonic_ns())
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def end(self) -> None:
        """End the run: settle and free the lock."""
        if self.enabled:
            self.settle()
            self.enabled = False
            self._memory.let_go()

    def _mark(self, kind: int, at_ns: int, value: int) -> None:
        if not self.enabled:
            return
        try:
            self._put(kind | self.span & _PHASE_MASK, at_ns, value)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def _put_pending(self) -> None:
        kind, self._pending = self._pending, 0
        self._mark(kind, monotonic_ns(), self.steps)

    def _put(self, kind_and_phase: int, at_ns: int, value: int) -> None:
        """Write one record.

        Taking a sequence number is atomic, so two threads never get the same slot. If they race,
        the head may step back by one until the next record.
        """
        sequence = next(self._sequences)
        first = sequence << SEQUENCE_SHIFT | kind_and_phase
        at = PAGE_BYTES + RECORD_BYTES * (sequence & _SLOT_MASK)
        _put_record(self._data, at, first, at_ns, value, first ^ at_ns ^ value)
        self._words[WORD_HEAD] = sequence + 1

    def _put_at(self, sequence: int, first: int, at_ns: int, value: int) -> None:
        at = PAGE_BYTES + RECORD_BYTES * (sequence & _SLOT_MASK)
        _put_record(self._data, at, first, at_ns, value, first ^ at_ns ^ value)

    def _publish(self, now_ns: int) -> None:
        """Write the copy of the totals that is not being read, then switch readers to it."""
        samples = self.samples
        if samples != self._published_samples:
            self._published_samples = samples
            self._put(_SAMPLES | self.span & _PHASE_MASK, now_ns, samples)
        self._due_ns = now_ns + _REST_NS
        generation = self._generation + 1
        words = (
            generation, self.span, self.since_ns, self.steps, samples, self._epoch_plus_1,
            now_ns, 0, *self._spent_ns, *_NO_WORDS,
        )  # fmt: skip
        _put_totals(self._data, _TOTALS_AT_BYTES[generation & 1], *words, reduce(xor, words))
        self._words[WORD_TOTALS_GENERATION] = generation
        self._generation = generation

    def _give_up(self, error: Exception) -> None:
        self.enabled = False
        if self._on_trouble is not None:
            self._on_trouble(error)


def _disable_in_child() -> None:
    for writer in tuple(_writers):
        writer.enabled = False  # the lock stays until the process ends


os.register_at_fork(after_in_child=_disable_in_child)

"""Writes one training process' phases into its ring: a clock read and a few stores, never I/O."""

from __future__ import annotations

import os
import weakref
from array import array
from collections.abc import Callable
from functools import reduce
from itertools import count
from operator import xor
from time import monotonic_ns
from typing import Final

from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_events import RingKind, RunFacts
from gpumon.core.ring_format import (
    FIRST_RECORD_WORD,
    KIND_SHIFT,
    MODE_SHIFT,
    RECORD_COUNT,
    RECORD_WORDS,
    SEQUENCE_SHIFT,
    T_EPOCH_PLUS_1,
    T_GENERATION,
    T_LAST_NS,
    T_PHASES,
    T_PRESENT,
    T_SAMPLES,
    T_SINCE_NS,
    T_STEPS,
    T_XOR,
    TOTALS_AT_WORDS,
    TOTALS_WORDS,
    WORD_HEAD,
    WORD_MASK,
    WORD_TOTALS_GENERATION,
)
from trainer_hooks.ring.ring_memory import RingMemory, publish

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
"""The totals are published no more often than that while phases of a step follow each other: it
takes a third of a record's time. What a killed process then keeps to itself is 10 ms."""
_OF_A_STEP: Final = frozenset(
    PHASE_NUMBER[phase]
    for phase in (
        TrainingPhase.INPUT_WAIT,
        TrainingPhase.HOST_TO_DEVICE,
        TrainingPhase.TRAIN_STEP,
        TrainingPhase.DEVICE_SYNC,
        TrainingPhase.CALLBACKS,
    )
)

_writers: weakref.WeakSet[RingWriter] = weakref.WeakSet()


class RingWriter:
    """The pen of one ring.

    One thread changes phases and counts steps; ``device_done`` may come from
    another. Nothing here raises or blocks: on the first error the writer says
    so once, through ``on_trouble``, and does nothing from then on. A forked
    child writes nothing: the ring, and its lock, are its parent's.
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
            facts: What its first page says.
            wall_ns: Wall clock at ``facts.started_ns``.
            on_trouble: Told of the error that ended the writing.
        """
        self.facts = facts
        self.enabled = True
        self._memory = memory
        self._wall_ns = wall_ns
        self._on_trouble = on_trouble
        self._words = memory.words
        self._sequences = count()
        self._totals = array("Q", bytes(8 * TOTALS_WORDS))
        self._copies = tuple(memory.words[at : at + TOTALS_WORDS] for at in TOTALS_AT_WORDS)
        self._present = START_UP  # phase | mode << MODE_SHIFT
        self._since_ns = facts.started_ns
        self._steps = self._samples = 0
        self._due_ns = self._unpublished = 0  # when to publish; xor of what changed since
        self._put(_ENTER | START_UP, facts.started_ns, 0)
        self._publish_totals(START_UP, 0, facts.started_ns)
        publish(memory)
        _writers.add(self)

    @property
    def present(self) -> tuple[int, int]:
        """Number of the phase under way, and of its mode."""
        return self._present & _PHASE_MASK, self._present >> MODE_SHIFT

    @property
    def steps(self) -> int:
        """Training steps counted so far."""
        return self._steps

    @property
    def samples(self) -> int:
        """Samples counted so far."""
        return self._samples

    def spent_ns(self, phase: int) -> int:
        """Nanoseconds in a phase so far, those of the one under way included."""
        open_ns = monotonic_ns() - self._since_ns if self.present[0] == phase else 0
        return self._totals[T_PHASES + phase] + max(0, open_ns)

    def enter(self, phase: int, mode: int = 0) -> None:
        """End the phase under way; phase number ``phase`` begins."""
        if not self.enabled:
            return
        try:
            now_ns = monotonic_ns()
            # As ``_put``, in place: there is no hotter line in a training.
            sequence, words = next(self._sequences), self._words
            first = sequence << SEQUENCE_SHIFT | _ENTER | phase
            at = FIRST_RECORD_WORD + RECORD_WORDS * (sequence & _SLOT_MASK)
            words[at + 1] = now_ns
            words[at + 2] = mode
            words[at + 3] = first ^ now_ns ^ mode
            words[at] = first
            words[WORD_HEAD] = sequence + 1
            old, spent_ns = self._present & _PHASE_MASK, now_ns - self._since_ns
            self._present, self._since_ns = phase | mode << MODE_SHIFT, now_ns
            if now_ns >= self._due_ns or phase not in _OF_A_STEP:
                self._publish_totals(old, spent_ns, now_ns)
            else:
                totals, slot = self._totals, T_PHASES + old
                before_ns = totals[slot]
                totals[slot] = after_ns = before_ns + spent_ns
                self._unpublished ^= before_ns ^ after_ns
        except Exception as error:  # noqa: BLE001 (the training goes on, whatever happens here)
            self._give_up(error)
        except BaseException:
            self._mend()
            raise

    def amount(self, phase: int, duration_ns: int) -> None:
        """``duration_ns`` of the phase under way were really spent in ``phase``."""
        if not self.enabled:
            return
        try:
            now_ns = monotonic_ns()
            carved_ns = max(0, min(duration_ns, now_ns - self._since_ns))
            self._put(_AMOUNT | phase, now_ns, carved_ns)
            self._since_ns += carved_ns  # so that the phases still sum to the wall
            self._publish_totals(phase, carved_ns, now_ns)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
        except BaseException:
            self._mend()
            raise

    def step(self, steps: int = 1, samples: int = 0) -> None:
        """``steps`` more training steps were handed to the device, with ``samples`` samples."""
        if not self.enabled:
            return
        self.count(steps, samples)
        try:
            self._publish_totals(0, 0, monotonic_ns())
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
        except BaseException:
            self._mend()
            raise

    def count(self, steps: int, samples: int) -> None:
        """As ``step``, and cheaper: but the totals only say so when the next phase is entered."""
        if not self.enabled:
            return
        try:
            now_ns = monotonic_ns()
            totals = self._totals
            old_steps = self._steps
            self._steps = totals[T_STEPS] = new_steps = old_steps + steps
            self._put(_STEP | self._present & _PHASE_MASK, now_ns, new_steps)
            check = old_steps ^ new_steps
            if samples > 0:
                old_samples = self._samples
                self._samples = totals[T_SAMPLES] = new_samples = old_samples + samples
                self._put(_SAMPLES | self._present & _PHASE_MASK, now_ns, new_samples)
                check ^= old_samples ^ new_samples
            totals[T_XOR] ^= check
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
        except BaseException:
            self._mend()
            raise

    def epoch(self, epoch: int) -> None:
        """Epoch ``epoch``, counted from 0, begins."""
        if not self.enabled:
            return
        try:
            now_ns = monotonic_ns()
            self._put(_EPOCH | self._present & _PHASE_MASK, now_ns, epoch)
            totals = self._totals
            totals[T_XOR] ^= totals[T_EPOCH_PLUS_1] ^ (epoch + 1)
            totals[T_EPOCH_PLUS_1] = epoch + 1
            self._publish_totals(0, 0, now_ns)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
        except BaseException:
            self._mend()
            raise

    def device_done(self, step: int, at_ns: int) -> None:
        """The device finished training step number ``step`` at ``at_ns``. From any thread."""
        self._mark(_DEVICE_DONE, at_ns, step)

    def event(self, value: int) -> None:
        """Leave a mark of the caller's own meaning."""
        self._mark(_EVENT, monotonic_ns(), value & WORD_MASK)

    def restate(self, facts: RunFacts) -> None:
        """Say something else in page 0; pid, boot and start stay as they are."""
        if not self.enabled:
            return
        try:
            self._memory.state_facts(facts, wall_ns=self._wall_ns)
            self.facts = facts
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def disable(self) -> None:
        """Write nothing from now on. The lock stays until the process ends."""
        self.enabled = False

    def _mark(self, kind: int, at_ns: int, value: int) -> None:
        if not self.enabled:
            return
        try:
            self._put(kind | self._present & _PHASE_MASK, at_ns, value)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def _put(self, kind_and_phase: int, at_ns: int, value: int) -> None:
        """One record; its first word is stored last but one, the head last.

        Taking a sequence number is one atomic step, so two threads never get
        the same slot. If they race, the head may step back by one for the
        moment; the next record puts it right.
        """
        sequence = next(self._sequences)
        words = self._words
        first = sequence << SEQUENCE_SHIFT | kind_and_phase
        at = FIRST_RECORD_WORD + RECORD_WORDS * (sequence & _SLOT_MASK)
        words[at + 1] = at_ns
        words[at + 2] = value
        words[at + 3] = first ^ at_ns ^ value
        words[at] = first
        words[WORD_HEAD] = sequence + 1

    def _publish_totals(self, phase: int, spent_ns: int, now_ns: int) -> None:
        """Add to a phase and write the copy of the totals that readers do not look at."""
        totals = self._totals
        old_generation = totals[T_GENERATION]
        generation = old_generation + 1
        present, since_ns = self._present, self._since_ns
        self._due_ns = now_ns + _REST_NS
        check = totals[T_XOR] ^ self._unpublished
        self._unpublished = 0
        check ^= old_generation ^ generation ^ present ^ since_ns ^ now_ns
        check ^= totals[T_PRESENT] ^ totals[T_SINCE_NS] ^ totals[T_LAST_NS]
        if spent_ns:
            slot = T_PHASES + phase
            spent_before_ns = totals[slot]
            totals[slot] = spent_now_ns = spent_before_ns + spent_ns
            check ^= spent_before_ns ^ spent_now_ns
        totals[T_GENERATION] = generation
        totals[T_PRESENT] = present
        totals[T_SINCE_NS] = since_ns
        totals[T_LAST_NS] = now_ns
        totals[T_XOR] = check
        self._copies[generation & 1][:] = totals
        self._words[WORD_TOTALS_GENERATION] = generation

    def _mend(self) -> None:
        """An interrupt came between two stores: check the sums anew, or no reader believes them."""
        self._totals[T_XOR] = reduce(xor, self._totals[:T_XOR])
        self._unpublished = 0

    def _give_up(self, error: Exception) -> None:
        self.enabled = False
        if self._on_trouble is not None:
            self._on_trouble(error)


def _disable_in_child() -> None:
    for writer in tuple(_writers):
        writer.disable()


os.register_at_fork(after_in_child=_disable_in_child)

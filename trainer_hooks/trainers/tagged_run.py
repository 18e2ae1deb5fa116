"""What every tagged run of a trainer has: a thread, a writer, and clocks for its callbacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from sys import modules
from threading import get_ident

from trainer_hooks.ring import phase_modes as modes
from trainer_hooks.ring.guard import warn_quietly
from trainer_hooks.ring.process_ring import NestedRun, ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps.torch_compiling import DYNAMO, CompileClock
from trainer_hooks.trainers.callback_times import CallbackClasses
from trainer_hooks.trainers.logged_ratios import LoggedRatios


class TaggedRun(ABC):
    """One run of a trainer, until ``stop``.

    Attributes:
        callbacks: Times the run's callbacks by class.
        ratios: For the loggers; ``None``: they receive none.
    """

    def __init__(self, ring: ProcessRing, writer: RingWriter) -> None:
        """Write nothing yet, until ``_begin_run``."""
        self._ring, self._writer = ring, writer
        self._nested: NestedRun | None = None
        self._is_active = True
        self._clock: CompileClock | None = None
        self._may_see_compiling = True
        self.callbacks = CallbackClasses(writer)
        self.ratios: LoggedRatios | None = None

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the training thread."""
        return self._is_active and get_ident() == self._ring.thread

    def is_running(self) -> bool:
        return self._is_active

    @property
    def encloses(self) -> bool:
        """Whether a run that begins now begins inside this one, for example in a callback."""
        return self.is_here and self.is_running()

    def stop(self) -> None:
        """Take everything away. Safe to call twice, and from any thread."""
        if not self._is_active:
            return
        is_here = self.is_here
        self._is_active = False
        self._leave()
        if self._clock is not None:
            self._clock.leave()
        if is_here:
            self.callbacks.write_facts()
        if self._nested is not None:
            self._ring.end_run(self._nested)

    def fail(self, error: Exception) -> None:
        """Stop tagging after an error of our own."""
        self.stop()
        warn_quietly(f"gpumon stopped tagging this run: {error!r}")

    def step_begins(self) -> None:
        """A training step follows: what torch compiles in it is ``compile``."""
        if self._clock is not None:
            self._clock.is_in_step = True
        elif self._may_see_compiling and DYNAMO in modules:
            self._may_see_compiling = False
            self._clock = CompileClock(self)
            self._clock.listen()
            self._clock.is_in_step = True

    def step_ends(self) -> None:
        """The step is over; its phase is still the current one."""
        if self._clock is not None:
            self._clock.end_step()

    @abstractmethod
    def _leave(self) -> None:
        """Restore the trainer."""

    def _begin_run(self) -> None:
        """From now on the calling thread's phases are the run's."""
        self._nested = self._ring.begin_run(self)

    def _go(self, phase_mode: modes.PhaseMode) -> None:
        if self._writer.present != phase_mode:
            self._writer.enter(*phase_mode)

    # Called by a ``CompileClock``.

    @property
    def machine_here(self) -> TaggedRun | None:
        return self if self.is_here else None

    def compile_begin(self) -> None:
        if self._writer.present == modes.TRAIN_STEP:
            self._writer.enter(*modes.COMPILE)

    def compile_end(self) -> None:
        if self._writer.present == modes.COMPILE:
            self._writer.enter(*modes.TRAIN_STEP)

    def compiled(self, duration_ns: int) -> None:
        if self.is_here and self._writer.present == modes.TRAIN_STEP:
            self._writer.amount(modes.COMPILE[0], duration_ns)

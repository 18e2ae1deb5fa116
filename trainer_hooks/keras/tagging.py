"""One tagged ``fit``, ``evaluate`` or ``predict``: puts the hooks in place and takes them away."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from typing import Any, NamedTuple

from trainer_hooks.keras.brackets import Brackets
from trainer_hooks.keras.fit_figures import Figures, StepEnds
from trainer_hooks.keras.nvtx_ranges import NvtxWriter, Ranges
from trainer_hooks.keras.probed_tap import ProbedTap
from trainer_hooks.ring.call_frames import is_calling
from trainer_hooks.ring.guard import Guard, guards_itself
from trainer_hooks.ring.phase_modes import TRAIN_MODE, VALIDATION_MODE, PhaseMode
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps import keras_private as private
from trainer_hooks.taps.phase_machine import (
    COMPILE,
    INPUT_WAIT,
    OTHER,
    TRAIN_STEP,
    PhaseMachine,
    StepWriter,
)
from trainer_hooks.trainers.callback_times import CallbackTimes
from trainer_hooks.trainers.loader_facts import facts_of, feeder_of_caller, report_loader


class TaggingOptions(NamedTuple):
    """What the user wants from a tagged training.

    Attributes:
        logs: Whether epochs get keys in their ``logs``.
        ranges: What opens NVTX ranges; ``None``: none.
        warn: Receives trouble as a sentence.
    """

    logs: bool
    ranges: Ranges | None
    warn: Callable[[str], None]


class Tagging:
    """Receives calls from the brackets and the tap, on whatever thread they come.

    Only the training thread changes phases: Keras runs ``async_safe`` callbacks on others.

    Attributes:
        ring: Knows the training thread.
        guard: Catches errors of everything that Keras calls here.
        machine: The rules for phases.
        is_active: Whether the run is still tagged.
    """

    def __init__(
        self,
        ring: ProcessRing,
        model: Any,  # noqa: ANN401
        callback_list: Any | None,  # noqa: ANN401
        *,
        backend: str,
        options: TaggingOptions,
    ) -> None:
        """Put everything in place. ``ring`` has a writer; ``callback_list`` may be ``None``."""
        assert ring.writer is not None
        self.ring, self._thread = ring, get_ident()
        self.guard = Guard(self._give_up)
        self._options = options
        self._writer: RingWriter = ring.writer
        self._nvtx = None if options.ranges is None else NvtxWriter(ring.writer, options.ranges)
        self._phases: StepWriter = self._nvtx or ring.writer
        self._callback_list = callback_list
        self._waits_each_step = not getattr(callback_list, private.RUNS_ASIDE, False)
        steps = getattr(model, "steps_per_execution", 1)
        self._steps_per_execution = steps if isinstance(steps, int) and steps > 0 else 1
        self.is_active = True
        self._is_whole_fit = self._is_verbose = self._has_reported_validation = False
        self._times = CallbackTimes(self._writer.facts.callback_ns)
        self._end: weakref.finalize[[], Any] | None = None
        self._ends = StepEnds(self._writer, self._steps_per_execution)
        self._figures = Figures(self._ends, options.warn)
        self._tap = ProbedTap(backend, model, self, options.warn)
        self.machine = self._tap.machine = PhaseMachine(
            self._phases,
            sees_steps=self._tap.is_there,
            fetches_first=self._tap.fetches_first,
            waits_each_step=self._waits_each_step,
        )
        self._brackets: Brackets | None = None
        if callback_list is not None:
            self._brackets = Brackets(callback_list, self, ends_here=self._waits_each_step)
        self._may_spare_batches = backend in ("jax", "torch")
        self._is_asynchronous = self._may_spare_batches and not self._waits_each_step
        self._nested = ring.begin_run(self)

    @property
    def has_brackets(self) -> bool:
        """Whether the end of the run will be noticed."""
        return self._brackets is not None

    @property
    def machine_here(self) -> PhaseMachine | None:
        """The rules, if the calling thread is the training thread."""
        is_here = get_ident() == self.ring.thread and self.is_active
        return self.machine if is_here else None

    def is_in(self, callback_list: Any | None) -> bool:  # noqa: ANN401
        """Whether ``callback_list`` is this run's."""
        is_ours = callback_list is not None and callback_list is self._callback_list
        return self.is_active and is_ours

    def is_calling_back(self) -> bool:
        """Whether a callback, not this run, is running a step of the model.

        Only checked while callbacks seem to be running: another callback list may not report their
        end.
        """
        self.machine.is_calling_back = is_calling(self._callback_list)
        return self.machine.is_calling_back

    def is_running(self) -> bool:
        return is_calling(self._callback_list)

    def encloses(self, callback_list: Any | None) -> bool:  # noqa: ANN401
        """Whether one of this run's callbacks runs that other list."""
        is_other = self._callback_list is not callback_list
        return self.is_active and is_other and self.is_running()

    def ends_with(self, feeder: object) -> None:
        """Stop when Keras' epoch iterator is gone: a callback may have raised."""
        # Not a weak reference with a callback: garbage collected together with the feeder, it
        # would not be called.
        self._end = weakref.finalize(feeder, self.stop)
        self._end.atexit = False

    def stop(self, *, is_now: bool = False) -> None:
        """Take everything away. Safe to call twice, and from any thread.

        Args:
            is_now: Whether the run ends at this call, so that an open region belongs to it.
        """
        machine = self.machine_here if is_now else None
        if not self.is_active:
            return
        self.is_active = False
        undo: list[Callable[[], object]] = [self._tap.remove]
        if self._end is not None:
            undo.append(self._end.detach)
        if self._brackets is not None:
            undo.append(self._brackets.remove)
        if machine is not None:
            undo.append(machine.train_end)
        undo += [self._end_here, lambda: self.ring.end_run(self._nested)]
        for undo_step in undo:
            with contextlib.suppress(Exception):  # the other steps must follow
                undo_step()

    def _end_here(self) -> None:
        if get_ident() != self._thread:
            return
        # Otherwise another run has written newer times.
        if self.ring.current_run is self._nested:
            self._times.write_facts(self._writer)
        if self._nvtx is not None:
            self._nvtx.close()  # each thread has ranges of its own

    def _give_up(self, error: Exception) -> None:
        try:
            self.stop()
        finally:
            self._options.warn(f"gpumon stopped tagging this run: {error!r}")

    # Called by the tagger and the brackets.

    def train_begins(self, epoch_steps: int | None, *, verbose: bool) -> None:
        self._is_whole_fit, self._is_verbose = True, verbose
        self._tap.install(TRAIN_MODE)
        self._figures.begin(self._writer, self.machine, wants_logs=self._options.logs)
        self.machine.train_begin(epoch_steps)
        if self._brackets is None:
            # Without brackets the end of the callbacks is not seen.
            self.machine.is_calling_back = False
            self._phases.enter(OTHER, TRAIN_MODE)

    def flush_begins(self) -> PhaseMode | None:
        machine = self.machine_here
        return None if machine is None else machine.flush_begin()

    def flush_ends(self, before: PhaseMode | None) -> None:
        if before is not None:
            self.machine.flush_end(before)

    def train_ends(self) -> None:
        if self.machine_here is not None and self._is_verbose:
            self._figures.print_line(is_asynchronous=not self._waits_each_step)
        self.stop(is_now=True)

    def run_begins(self, mode: int) -> None:
        self._tap.install(mode)
        machine = self.machine_here
        if machine is not None:
            machine.run_begin(mode)
            if self._is_whole_fit and mode == VALIDATION_MODE and not self._has_reported_validation:
                self._has_reported_validation = True
                with contextlib.suppress(Exception):  # another Keras
                    report_loader(facts_of(feeder_of_caller()), validates=True)
            self._times.begin()

    def run_ends(self) -> None:
        machine = self.machine_here
        if not self._is_whole_fit:
            self.stop(is_now=True)
        elif machine is not None:
            machine.run_end()

    def epoch_begins(self, epoch: int) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.epoch_begin(epoch)
            self._ends.epoch_begins()
            self._figures.epoch_begins()
            self._times.begin()

    def epoch_begin_callbacks_done(self) -> None:
        if self._is_whole_fit:
            self._tap.install(TRAIN_MODE)  # a callback may have replaced the function
        self.callbacks_end()

    def epoch_ends(self, logs: Any) -> None:  # noqa: ANN401
        machine = self.machine_here
        if machine is not None:
            machine.callbacks_begin()
            self._figures.epoch_ends(logs, sees_input=self._tap.is_trusted)
            self._times.begin()

    def callbacks_begin(self) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.callbacks_begin()
            self._times.begin()

    def callbacks_end(self) -> None:
        machine = self.machine_here
        if machine is not None:
            self._times.publish_rarely(self._writer)
            machine.callbacks_end()

    @guards_itself
    def batch_announced(self, batch: int | None = None, logs: object = None) -> None:
        try:
            if get_ident() != self.ring.thread or not self.is_active:
                return
            machine = self.machine
            if not machine.has_seen_steps:
                unseen = self._tap.announced()
                if unseen:
                    self._phases.count(unseen * self._steps_per_execution, 0)
            elif self._may_spare_batches and self._tap.is_trusted and self._brackets is not None:
                self._may_spare_batches = False
                self._brackets.skip_batch_begin()
            machine.batch_announced()
            self._times.since_ns = monotonic_ns()
        except Exception as error:  # noqa: BLE001 (training goes on)
            self.guard.fail(error)

    @guards_itself
    def batch_begins(self, batch: int | None = None, logs: object = None) -> None:
        try:
            if get_ident() == self.ring.thread and self.is_active:
                machine = self.machine
                if not machine.sees_steps:
                    self._phases.count(self._steps_per_execution, 0)
                machine.batch_begins()
        except Exception as error:  # noqa: BLE001
            self.guard.fail(error)

    @guards_itself
    def step_returned(self, batch: int, logs: object = None) -> None:
        try:
            if get_ident() == self.ring.thread and self.is_active:
                self.machine.step_returned()
                writer, step_times = self._writer, self._ends.times
                self._times.since_ns = now_ns = writer.since_ns
                if self._waits_each_step and step_times is not None:
                    step_times.done(writer.steps, now_ns)
            elif self._is_asynchronous and self.is_active:
                self._ends.results_arrived(batch, monotonic_ns())
        except Exception as error:  # noqa: BLE001
            self.guard.fail(error)

    @guards_itself
    def batch_callbacks_end(self, batch: int | None = None, logs: object = None) -> None:
        try:
            if get_ident() == self.ring.thread and self.is_active:
                machine = self.machine
                machine.is_calling_back = False
                if not machine.awaits_batch:
                    machine.batch_callbacks_end()
        except Exception as error:  # noqa: BLE001
            self.guard.fail(error)

    def slot_of(self, callback: object) -> int:
        return self._times.slot_of(type(callback).__name__)

    def after(self, slot: int, *, is_checkpoint: bool) -> Callable[..., None]:
        @guards_itself
        def returned(batch: object = None, logs: object = None) -> None:
            try:
                if get_ident() == self.ring.thread and self.is_active:
                    self._times.returned(slot)
                    if is_checkpoint:
                        self.machine.checkpoint_end()
            except Exception as error:  # noqa: BLE001
                self.guard.fail(error)

        return returned

    def checkpoint_begins(self) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.checkpoint_begin()

    # Called by the tap.

    @property
    def steps(self) -> int:
        return self._writer.steps

    def device_done(self, step: int, at_ns: int) -> None:
        self._ends.device_finished(step, at_ns)

    def failed(self) -> None:
        self.stop()

    def waited(self, input_wait_ns: int) -> None:
        machine = self.machine_here
        if machine is not None and machine.mode == TRAIN_MODE:
            self._writer.amount(INPUT_WAIT, input_wait_ns)

    def compiled(self, duration_ns: int) -> None:
        machine = self.machine_here
        if machine is not None and self._phases.present == (TRAIN_STEP, TRAIN_MODE):
            self._writer.amount(COMPILE, duration_ns)

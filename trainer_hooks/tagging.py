"""One tagged ``fit``, ``evaluate`` or ``predict``: what is put in place for it, and taken away."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from trainer_hooks.brackets import Brackets
from trainer_hooks.phase_machine import (
    BETWEEN_EPOCHS,
    COMPILE,
    DEVICE_SYNC,
    INPUT_WAIT,
    TRAIN,
    TRAIN_STEP,
    PhaseMachine,
)
from trainer_hooks.process_ring import ProcessRing
from trainer_hooks.ring_writer import RingWriter
from trainer_hooks.taps import make_tap

if TYPE_CHECKING:
    from trainer_hooks.taps.device_watch import DeviceWatch


class Tagging:
    """Hears from the brackets and the tap, on whatever thread they are called.

    Only what happens on the thread that trains is a phase: Keras runs
    ``async_safe`` callbacks on others, beside the training.
    """

    def __init__(
        self,
        ring: ProcessRing,
        model: Any,  # noqa: ANN401
        callback_list: Any | None,  # noqa: ANN401
        *,
        backend: str,
    ) -> None:
        """Put everything in place.

        Args:
            ring: Must have a writer.
            model: The Keras model.
            callback_list: The ``CallbackList`` that called; ``None`` if not found.
            backend: Keras' backend.
        """
        assert ring.writer is not None
        ring.adopt_thread()
        self._ring = ring
        self._pen: RingWriter = ring.writer
        self._backend = backend
        self._tap = make_tap(backend, model, self)
        self._machine = PhaseMachine(
            self._pen,
            sees_steps=self._tap is not None,
            fetches_first=self._tap is not None and self._tap.fetches_first,
        )
        self._steps_per_execution = int(getattr(model, "steps_per_execution", 1) or 1)
        self._is_active = True
        self._is_whole_fit = False
        self._waits_each_step = not getattr(callback_list, "_async_train", False)
        self._watch: DeviceWatch | None = None
        self._brackets: Brackets | None = None
        if callback_list is not None:
            each_batch = self._waits_each_step or backend != "jax"
            self._brackets = Brackets(callback_list, self, each_batch=each_batch)
        self._callback_list = callback_list
        if backend == "jax":
            from trainer_hooks.taps.device_watch import DeviceWatch

            self._watch = DeviceWatch(self._pen.device_done)
        self._bracket_flush()

    @property
    def has_brackets(self) -> bool:
        """Whether the end of the run will be noticed."""
        return self._brackets is not None

    @property
    def machine_here(self) -> PhaseMachine | None:
        """The rules, if the calling thread is the one that trains."""
        is_here = self._is_active and self._ring.writer_here is self._pen
        return self._machine if is_here else None

    def is_in(self, callback_list: Any | None) -> bool:  # noqa: ANN401
        """Whether this is about the run that ``callback_list`` belongs to."""
        is_ours = callback_list is not None and callback_list is self._callback_list
        return self._is_active and is_ours

    def stop(self) -> None:
        """Take everything away. Safe to call twice."""
        if not self._is_active:
            return
        self._is_active = False
        if self._tap is not None:
            self._tap.remove()
        if self._brackets is not None:
            self._brackets.remove()
        if self._callback_list is not None:
            vars(self._callback_list).pop("_flush_futures", None)
        if self._watch is not None:
            self._watch.stop()
        self._machine.train_end()

    # What the tagger and the brackets say.

    def train_begins(self, epoch_steps: int | None) -> None:
        self._is_whole_fit = True
        if self._tap is not None:
            self._tap.place(TRAIN)
        self._machine.train_begin(epoch_steps)

    def train_ends(self) -> None:
        self.stop()

    def run_begins(self, mode: int) -> None:
        if self._tap is not None:
            self._tap.place(mode)
        machine = self.machine_here
        if machine is not None:
            machine.run_begin(mode)

    def run_ends(self) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.run_end()
        if not self._is_whole_fit:
            self.stop()

    def epoch_begins(self, epoch: int) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.epoch_begin(epoch)

    def callbacks_begin(self) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.callbacks_begin()

    def callbacks_end(self) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.callbacks_end()

    def batch_begins(self) -> None:
        machine = self.machine_here
        if machine is not None:
            if self._tap is None:
                self._pen.step(self._steps_per_execution)
            machine.batch_begins()

    def step_returned(self) -> None:
        machine = self.machine_here
        if machine is None:
            return
        if self._tap is not None and self._waits_each_step:
            self._pen.device_done(self._pen.steps, monotonic_ns())
        machine.callbacks_begin()

    def batch_callbacks_end(self) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.batch_callbacks_end()

    def checkpoint_begin(self) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.checkpoint_begin()

    def checkpoint_end(self) -> None:
        machine = self.machine_here
        if machine is not None:
            machine.checkpoint_end()

    # What the tap says.

    def dispatched(self, steps: int, samples: int, logs: object) -> None:
        self._machine.dispatched(steps, samples, waits=self._waits_each_step)
        if not self._waits_each_step and self._watch is not None:
            self._watch.submit(self._pen.steps, logs)

    @property
    def steps(self) -> int:
        return self._pen.steps

    def device_done(self, step: int, at_ns: int) -> None:
        self._pen.device_done(step, at_ns)

    def failed(self) -> None:
        self.stop()

    def waited(self, input_wait_ns: int) -> None:
        machine = self.machine_here
        if machine is not None and machine.mode == TRAIN:
            self._pen.amount(INPUT_WAIT, input_wait_ns)

    def compiled(self, duration_ns: int) -> None:
        machine = self.machine_here
        if machine is not None and machine.mode == TRAIN:
            self._pen.amount(COMPILE, duration_ns)

    def _bracket_flush(self) -> None:
        """Time the wait at an epoch's end: for callbacks on other threads, and so the device."""
        flush = getattr(self._callback_list, "_flush_futures", None)
        if flush is None or self._waits_each_step:
            return

        def timed_flush() -> None:
            machine = self.machine_here
            if machine is None or machine.mode != TRAIN:
                flush()
                return
            phase, mode = self._pen.present
            self._pen.enter(DEVICE_SYNC, TRAIN)
            try:
                flush()
            finally:
                # To enter ``train_step`` again would say that one more step began.
                self._pen.enter(BETWEEN_EPOCHS if phase == TRAIN_STEP else phase, mode)

        vars(self._callback_list)["_flush_futures"] = timed_flush

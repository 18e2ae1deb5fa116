"""Uncompiled training with several steps a call on TensorFlow: fetch, compute, fetch, compute."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

import tensorflow as tf

from trainer_hooks.ring.guard import passes_through
from trainer_hooks.ring.phase_modes import TRAIN_MODE
from trainer_hooks.taps.phase_machine import PhaseMachine
from trainer_hooks.taps.tap import StepListener, rows_of
from trainer_hooks.taps.tensorflow.fetches import Fetch, patch_of_iterators
from trainer_hooks.taps.tensorflow.functions import ENDS_OF_DATA, StepAround


class EagerStep(StepAround):
    """Calls the step as it is and sees each fetch inside it.

    When a batch is fetched, the one before it has been computed if operations are finished when
    Python has called them. On a GPU they may not be: all but the first wait of a call are then
    *gross*.

    Attributes:
        has_gross_wait: Whether its wait for input may have overlapped the compute.
    """

    def __init__(self, function: Any, mode: int, listener: StepListener, *, batches: int) -> None:  # noqa: ANN401
        """Find what is to be patched; a call has at most ``batches`` batches.

        Raises:
            ImportError: This TensorFlow keeps its iterators elsewhere.
            KeyError: Its iterators fetch in another way.
        """
        super().__init__(function, mode, listener)
        self._patch = patch_of_iterators()
        self._steps = self._rows = 0  # fetched in this call, but not reported yet
        self._computes_at_once = _computes_at_once()
        guard = listener.guard
        self._finish = guard.wrap(self._finishes)
        self._begin_fetch = guard.wrap(self._fetch_begins)
        self._end_fetch = guard.wrap(self._fetch_ends)
        self._miss_fetch = guard.wrap(self._fetch_fails)
        self.has_gross_wait = mode == TRAIN_MODE and batches > 1 and not self._computes_at_once

    @passes_through
    def _train(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        self._steps = self._rows = 0
        try:
            logs = self._call(machine, iterator)
        except ENDS_OF_DATA:
            self._finish(machine, True)
            raise
        except BaseException:
            self._failed()
            raise
        self._finish(machine, False)
        return logs

    @passes_through
    def _evaluate(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        return self._call(machine, iterator)

    @passes_through
    def _call(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        @passes_through
        def around(fetch: Fetch) -> Any:  # noqa: ANN401
            # Eager execution may be switched off during the call.
            if not tf.executing_eagerly():
                return fetch()
            is_outside_steps = self._begin_fetch(machine)
            try:
                fetched = fetch()
            except BaseException as error:
                self._miss_fetch(machine, is_outside_steps, error)
                raise
            self._end_fetch(machine, is_outside_steps, fetched)
            return fetched

        return self._patch.call(self._function, iterator, around)

    def _finishes(self, machine: PhaseMachine, has_ended: bool) -> None:
        """End a call; ``has_ended``: by the end of the data, perhaps after some batches."""
        if not self._steps:
            return
        self._report(machine)
        if has_ended:
            machine.fetch_exhausted()

    def _report(self, machine: PhaseMachine) -> None:
        steps, rows = self._steps, self._rows
        self._steps = self._rows = 0
        machine.dispatched(steps, rows)

    def _fetch_begins(self, machine: PhaseMachine) -> bool:
        """Begin a fetch and return whether a step may be running at the same time."""
        if self._mode == TRAIN_MODE and self._steps:
            if not self._computes_at_once:
                machine.fetch_outside_steps_begin()
                return True
            self._report(machine)
            self._listener.device_done(self._listener.steps, monotonic_ns())
        machine.fetch_begin()
        return False

    def _fetch_fails(
        self,
        machine: PhaseMachine,
        is_outside_steps: bool,
        error: BaseException,
    ) -> None:
        if is_outside_steps:
            machine.fetch_end()
        elif isinstance(error, ENDS_OF_DATA):
            machine.fetch_exhausted()

    def _fetch_ends(self, machine: PhaseMachine, is_outside_steps: bool, fetched: Any) -> None:  # noqa: ANN401
        if is_outside_steps:
            machine.fetch_end()
            self._count(fetched)
        elif self._count(fetched):
            machine.fetch_end()
        else:  # the end of the data: no step follows this wait
            machine.fetch_exhausted()

    def _count(self, fetched: Any) -> bool:  # noqa: ANN401
        """Whether there was a batch."""
        batch = fetched
        if isinstance(fetched, tf.experimental.Optional):
            if not bool(fetched.has_value()):
                return False
            batch = fetched.get_value()
        self._steps += 1
        self._rows += rows_of(batch)
        return True


def _computes_at_once() -> bool:
    """Whether an operation is finished when Python has called it."""
    is_synchronous: bool = tf.config.experimental.get_synchronous_execution()
    return is_synchronous and all(
        device.device_type == "CPU" for device in tf.config.list_logical_devices()
    )

"""Several steps a call on TensorFlow where nothing is compiled: fetch, compute, fetch, compute."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

import tensorflow as tf

from trainer_hooks.ring.places import TRAINS
from trainer_hooks.taps.phase_machine import PhaseMachine
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.taps.tap import StepListener
from trainer_hooks.taps.tensorflow.fetches import Around, Fetch, patch_of_iterators
from trainer_hooks.taps.tensorflow.functions import ENDS_OF_DATA, StepAround


class EagerStep(StepAround):
    """Calls the step as it is, and hears of each fetch inside it.

    When a batch is fetched, the one before it has been computed with, where
    operations are over when Python has called them. On a GPU they may not be,
    and nobody says when: all but the first wait of a call are then *gross*.

    Attributes:
        has_gross_wait: Whether what it tells as a wait for input may have
            passed beside the compute.
    """

    def __init__(self, function: Any, mode: int, listener: StepListener, *, batches: int) -> None:  # noqa: ANN401
        """Find what is to be gone around; a call has so many batches at most.

        Raises:
            ImportError: This TensorFlow keeps its iterators elsewhere.
            KeyError: Its iterators fetch in another way.
        """
        super().__init__(function, mode, listener)
        self._patch = patch_of_iterators()
        self._steps = self._rows = 0  # fetched in this call, and not told yet
        self._computes_at_once = _computes_at_once()
        self.has_gross_wait = mode == TRAINS and batches > 1 and not self._computes_at_once

    def _train(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        def around(fetch: Fetch) -> Any:  # noqa: ANN401
            if not self._steps:
                return self._fetch(machine, fetch)
            if not self._computes_at_once:
                return self._fetch_beside(machine, fetch)
            self._tell(machine)
            self._listener.device_done(self._listener.steps, monotonic_ns())
            return self._fetch(machine, fetch)

        self._steps = self._rows = 0
        try:
            logs = self._call(iterator, around)
        except ENDS_OF_DATA:
            if self._steps:  # the data ended within this call, after some batches
                self._tell(machine)
                machine.fetch_exhausted()
            raise
        except BaseException:
            self._listener.failed()
            raise
        if self._steps:
            self._tell(machine)
        return logs

    def _evaluate(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        return self._call(iterator, lambda fetch: self._fetch(machine, fetch))

    def _call(self, iterator: Any, around: Around) -> Any:  # noqa: ANN401
        def around_what_is_fetched_now(fetch: Fetch) -> Any:  # noqa: ANN401
            # Somebody may let functions be compiled again while this is under way.
            return around(fetch) if tf.executing_eagerly() else fetch()

        return self._patch.call(self._function, iterator, around_what_is_fetched_now)

    def _tell(self, machine: PhaseMachine) -> None:
        steps, rows = self._steps, self._rows
        self._steps = self._rows = 0
        machine.dispatched(steps, rows)

    def _fetch(self, machine: PhaseMachine, fetch: Fetch) -> Any:  # noqa: ANN401
        machine.fetch_begin()
        try:
            fetched = fetch()
        except ENDS_OF_DATA:
            machine.fetch_exhausted()
            raise
        if self._count(fetched):
            machine.fetch_end()
        else:  # the end of the data: no step follows this wait
            machine.fetch_exhausted()
        return fetched

    def _fetch_beside(self, machine: PhaseMachine, fetch: Fetch) -> Any:  # noqa: ANN401
        machine.fetch_beside_begin()
        try:
            fetched = fetch()
        finally:
            machine.fetch_end()
        self._count(fetched)
        return fetched

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
    """Whether an operation is over when Python has called it."""
    is_synchronous: bool = tf.config.experimental.get_synchronous_execution()
    return is_synchronous and all(
        device.device_type == "CPU" for device in tf.config.list_logical_devices()
    )

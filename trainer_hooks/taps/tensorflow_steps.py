"""What goes around a step function of TensorFlow's, and which calls of it are somebody else's."""

from __future__ import annotations

import abc
from typing import Any, Final

import tensorflow as tf

from trainer_hooks.keras_fit.phase_machine import TRAIN, PhaseMachine
from trainer_hooks.taps import StepListener

ITERATORS: Final = (tf.data.Iterator, tf.distribute.DistributedIterator)
"""What ``fit`` and ``evaluate`` hand to a step; ``train_on_batch`` hands it something else."""

ENDS_OF_DATA: Final = (StopIteration, tf.errors.OutOfRangeError)
"""How a step says that there are no more batches; Keras takes both for that."""


class StepAround(abc.ABC):
    """Stands for the step function of one mode, and calls it.

    Calls of another thread, of somebody's callback or on a batch by itself
    are handed on as they are.
    """

    def __init__(self, function: Any, mode: int, listener: StepListener) -> None:  # noqa: ANN401
        self._function = function
        self._mode = mode
        self._listener = listener
        self._kind: type[Any] | None = None  # of the iterator that was handed over last

    def __call__(self, iterator: Any) -> Any:  # noqa: ANN401
        """One execution, as the bare function takes it."""
        machine = self._listener.machine_here
        if machine is None:
            return self._function(iterator)
        if type(iterator) is not self._kind:  # asking for a subclass takes longer
            if not isinstance(iterator, ITERATORS):
                return self._function(iterator)
            self._kind = type(iterator)
        if self._mode == TRAIN:
            if machine.is_calling_back and self._listener.is_calling_back():
                return self._function(iterator)
            return self._train(machine, iterator)
        if machine.mode == self._mode:
            return self._evaluate(machine, iterator)
        before = machine.borrow(self._mode)
        try:
            return self._evaluate(machine, iterator)
        finally:
            machine.give_back(before)

    @abc.abstractmethod
    def _train(self, machine: PhaseMachine, iterator: Any) -> Any: ...  # noqa: ANN401

    @abc.abstractmethod
    def _evaluate(self, machine: PhaseMachine, iterator: Any) -> Any: ...  # noqa: ANN401

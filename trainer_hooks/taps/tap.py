"""What wraps the steps of a Keras model, whatever the backend, and what it reports to."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from gpumon.core.ring_format.facts import GROSS, INPUT_WAIT_FACT
from trainer_hooks.ring.guard import Guard, guards_itself, passes_through
from trainer_hooks.ring.process_ring import describe_run, process_ring
from trainer_hooks.taps.phase_machine import PhaseMachine

FUNCTION_OF_MODE = ("train_function", "test_function", "predict_function")
"""The attribute of a model that holds the step of a mode, by the number of the mode."""


class StepListener(Protocol):
    """Receives what happens in steps."""

    @property
    def guard(self) -> Guard:
        """Catches errors of everything that a step calls here."""

    @property
    def machine_here(self) -> PhaseMachine | None:
        """The rules, if the calling thread is the training thread."""

    @property
    def steps(self) -> int:
        """Training steps handed to the device so far."""

    def is_calling_back(self) -> bool:
        """Whether a callback is running; called where ``machine.is_calling_back`` is true."""

    def waited(self, input_wait_ns: int) -> None:
        """That much of the current step, or of those since the last call, was a wait for input."""

    def compiled(self, duration_ns: int) -> None:
        """That much of the current phase was tracing or compiling."""

    def device_done(self, step: int, at_ns: int) -> None:
        """The device finished that training step, CLOCK_MONOTONIC. On any thread."""

    def failed(self) -> None:
        """A step raised: the run is over."""


class Tap(abc.ABC):
    """Replaces a model's steps by timed functions, until ``remove``.

    Keras looks the functions up on the model in each step, and a model made by ``fit`` keeps them:
    an attribute of the instance is enough.

    Attributes:
        fetches_first: Whether Keras fetches a batch before it calls the
            callbacks that announce it, as it does on torch.
    """

    fetches_first = False

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        self._model = model
        self._listener = listener
        self._installed: dict[str, tuple[Any, Any]] = {}

    def install(self, mode: int) -> None:
        """Wrap the step of this mode, unless that was done."""
        name = FUNCTION_OF_MODE[mode]
        present = getattr(self._model, name, None)
        if present is None or self._is_installed(name):
            return
        bare = bare_of(present)
        timed = self._timed(bare, mode)
        if timed is not bare:
            timed.bare = bare
        self._installed[name] = (bare, timed)
        setattr(self._model, name, timed)

    def remove(self) -> None:
        """Restore the model, except for functions that were replaced meanwhile."""
        for name, (original, timed) in self._installed.items():
            if getattr(self._model, name, None) is timed:
                setattr(self._model, name, original)
        self._installed.clear()

    def _is_installed(self, name: str) -> bool:
        return name in self._installed and self._installed[name][1] is getattr(
            self._model, name, None
        )

    @abc.abstractmethod
    def _timed(self, function: Any, mode: int) -> Any:  # noqa: ANN401
        """Return what replaces a bare step function of that mode; itself, if nothing is timed."""


class FetchedBatches:
    """An iterator over batches that counts each ``next()`` as a wait for input.

    Attributes:
        source: Where they come from.
        machine: The rules.
        fetched: Batches since this was last set to 0.
        samples: Samples in them, where known.
    """

    fetches_outside_steps = False

    __slots__ = ("_exhausted", "_guard", "fetched", "machine", "samples", "source")

    def __init__(self, source: Iterator[Any], machine: PhaseMachine, guard: Guard) -> None:
        self.source = source
        self.machine = machine
        self.fetched = self.samples = 0
        self._guard = guard
        self._exhausted = guard.wrap(self._fetch_finds_nothing)

    @passes_through
    def __iter__(self) -> FetchedBatches:
        return self

    @guards_itself
    def __next__(self) -> Any:  # noqa: ANN401
        guard, machine = self._guard, self.machine
        try:
            if guard.is_intact:
                if self.fetched and self.fetches_outside_steps:
                    machine.fetch_outside_steps_begin()
                else:
                    machine.fetch_begin()
        except Exception as error:  # noqa: BLE001 (training goes on)
            guard.fail(error)
        try:
            batch = next(self.source)
        except StopIteration:
            self._exhausted()
            raise
        try:
            if guard.is_intact:
                machine.fetch_end()
                self.fetched += 1
                self.samples += rows_of(batch)
        except Exception as error:  # noqa: BLE001
            guard.fail(error)
        return batch

    def _fetch_finds_nothing(self) -> None:
        self.machine.fetch_exhausted()


def bare_of(function: Any) -> Any:  # noqa: ANN401
    """Return the function without the wrapper that a crashed training left around it."""
    while hasattr(function, "bare"):
        function = function.bare
    return function


def mark_wait_as_gross() -> None:
    """Write in the ring's first page that a wait for input may have overlapped the compute."""
    writer = process_ring().writer
    if writer is not None:
        describe_run(loader={**writer.facts.loader, INPUT_WAIT_FACT: GROSS})


_DEEPEST: Final = 8


def rows_of(batch: Any) -> int:  # noqa: ANN401
    """Return the samples in a batch, from the shape of its first array; 0 if there is none.

    Reads shapes only: no value is fetched from a device.
    """
    try:
        first = batch[0] if type(batch) in (tuple, list) else batch
        if not hasattr(first, "shape"):
            first = _first_array(first)
        return int(first.shape[0])
    except Exception:  # noqa: BLE001 (whatever a batch is, the run goes on)
        return 0


def _first_array(batch: Any) -> Any:  # noqa: ANN401
    for _ in range(_DEEPEST):
        if isinstance(batch, (tuple, list)):
            batch = batch[0]
        elif isinstance(batch, Mapping):  # such as a dict, or what a tokenizer makes
            batch = next(iter(batch.values()))
        else:
            break
    return batch

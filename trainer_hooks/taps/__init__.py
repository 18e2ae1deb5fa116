"""One file for each backend: where Keras fetches a batch there, and where it computes."""

from __future__ import annotations

from typing import Any, Protocol

from trainer_hooks.keras.phase_machine import PhaseMachine

FUNCTION_OF_MODE = ("train_function", "test_function", "predict_function")
"""The attribute of a model that holds the step of a mode, by the number of the mode."""


class StepListener(Protocol):
    """Who is told of steps."""

    @property
    def machine_here(self) -> PhaseMachine | None:
        """The rules, if the calling thread is the one that trains."""
        ...

    @property
    def steps(self) -> int:
        """Training steps handed to the device so far."""
        ...

    def is_calling_back(self) -> bool:
        """Whether a callback is under way; asked where ``machine.is_calling_back`` says so."""
        ...

    def waited(self, input_wait_ns: int) -> None:
        """So much of the step under way, or of those since the last call, was a wait for input."""
        ...

    def compiled(self, duration_ns: int) -> None:
        """So much of the phase under way was tracing or compiling."""
        ...

    def device_done(self, step: int, at_ns: int) -> None:
        """The device finished that training step then, CLOCK_MONOTONIC; on any thread."""
        ...

    def failed(self) -> None:
        """A step raised: nothing more will come of this run."""
        ...


class Tap(Protocol):
    """Puts itself around a model's steps, and takes itself away again.

    Attributes:
        fetches_first: Whether Keras fetches a batch before it calls the
            callbacks that announce it, as it does on torch.
    """

    fetches_first: bool

    def place(self, mode: int) -> None:
        """Go around the step of this mode, unless it is done already."""
        ...

    def remove(self) -> None:
        """Leave the model as it was, but for functions that were made anew meanwhile."""
        ...


def make_tap(backend: str, model: Any, listener: StepListener) -> Tap | None:  # noqa: ANN401
    """The tap of a backend; ``None`` where there is none for it.

    Raises:
        ImportError: The backend is another one than Keras runs on.
    """
    if backend == "jax":
        from trainer_hooks.taps.jax import JaxTap

        return JaxTap(model, listener)
    if backend == "tensorflow":
        from trainer_hooks.taps.tensorflow.tap import TensorflowTap

        return TensorflowTap(model, listener)
    if backend == "torch":
        from trainer_hooks.taps.torch import TorchTap

        return TorchTap(model, listener)
    return None

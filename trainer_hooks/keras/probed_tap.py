"""Use a backend's tap only while batches pass through it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar

from trainer_hooks.taps.phase_machine import PhaseMachine
from trainer_hooks.taps.tap import StepListener, Tap

T = TypeVar("T")

TAPS: Final = {
    "jax": ("jax", "JaxTap"),
    "tensorflow": ("tensorflow.tap", "TensorflowTap"),
    "torch": ("torch", "TorchTap"),
}
"""The tap of each backend on which fetching and computing are distinguished."""
PATIENCE_BATCHES: Final = 3
"""Announced batches after which one must have passed the tap."""


class ProbedTap:
    """Trusts its tap once a batch went through it, and does without it otherwise.

    A model may train without its train function, another callback may replace that, and another
    version of a framework may differ from what the tap expects. None of this ends a run: the
    wait for input and the step are then both ``other``.

    Attributes:
        machine: Set once it exists; is notified when the tap is given up.
    """

    def __init__(
        self,
        backend: str,
        model: Any,  # noqa: ANN401
        listener: StepListener,
        warn: Callable[[str], None],
    ) -> None:
        """Create the tap of a backend, if it has one; ``warn`` receives trouble as a sentence."""
        self.machine: PhaseMachine | None = None
        self._warn = warn
        self._announced = 0
        self._tap: Tap | None = None
        self._tap = self.attempt(lambda: make_tap(backend, model, listener))

    @property
    def is_there(self) -> bool:
        return self._tap is not None

    @property
    def has_passed(self) -> bool:
        return self.machine is not None and self.machine.has_seen_steps

    @property
    def is_trusted(self) -> bool:
        """Whether there is a tap that a batch went through."""
        return self._tap is not None and self.has_passed

    @property
    def fetches_first(self) -> bool:
        """Whether Keras fetches a batch before the callbacks that announce it."""
        return self._tap is not None and self._tap.fetches_first

    def install(self, mode: int) -> None:
        if self._tap is not None:
            tap = self._tap
            self.attempt(lambda: tap.install(mode))

    def remove(self) -> None:
        tap, self._tap = self._tap, None
        if tap is not None:
            self.attempt(tap.remove)

    def announced(self) -> int:
        """Count one more announced batch.

        Returns:
            How many batches passed unseen, when that has just become clear; else 0.
        """
        unseen = self._announced
        self._announced += 1
        if self._tap is None or self.has_passed or unseen < PATIENCE_BATCHES:
            return 0
        self.give_up(f"none of the first {unseen} batches passed its train function")
        return unseen

    def attempt(self, what: Callable[[], T]) -> T | None:
        """Call ``what``; if it fails, go on without a tap."""
        try:
            return what()
        except Exception as error:  # noqa: BLE001 (training goes on, whatever happens here)
            self.give_up(f"{type(error).__name__}: {error}")
            return None

    def give_up(self, why: str) -> None:
        self.remove()
        if self.machine is not None:
            self.machine.see_no_steps()
        self._warn(
            f"gpumon's PhaseTagger cannot see the steps of this run ({why}): callbacks, "
            "checkpoint, validation and between_epochs are tagged, but the wait for input and the "
            "step are both 'other'"
        )


def make_tap(backend: str, model: Any, listener: StepListener) -> Tap | None:  # noqa: ANN401
    """Return the tap of a backend; ``None`` if it has none.

    Raises:
        ImportError: Keras runs on another backend.
    """
    if backend not in TAPS:
        return None
    module, kind = TAPS[backend]
    tap: Tap = getattr(import_module(f"trainer_hooks.taps.{module}"), kind)(model, listener)
    return tap

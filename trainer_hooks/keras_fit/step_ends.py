"""When each training step is done: by what the device tells, or by what the host sees of it."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

from trainer_hooks.keras_fit.step_times import StepTimes
from trainer_hooks.ring.ring_writer import RingWriter

if TYPE_CHECKING:
    from trainer_hooks.taps.device_watch import DeviceWatch


class StepEnds:
    """Hears of the ends of steps, on any thread, for the ring and for the figures of a ``fit``.

    Attributes:
        times: Where they go; ``None``: there are no figures.
    """

    def __init__(self, writer: RingWriter) -> None:
        self.times: StepTimes | None = None
        self._writer = writer
        self._watch: DeviceWatch | None = None
        self._is_told = False

    def watch_jax(self) -> None:
        """Have a thread wait for what steps return.

        Raises:
            ImportError: There is no JAX.
        """
        from trainer_hooks.taps.device_watch import DeviceWatch

        self._watch = DeviceWatch(self.told)

    def stop(self) -> None:
        """Watch no more, once the last step was told of. Safe to call twice."""
        if self._watch is not None:
            self._watch.stop()

    def handed_over(self, logs: object) -> None:
        """The device has one more step's work, and Keras does not wait for it.

        Args:
            logs: What the step returned.
        """
        if self._watch is not None:
            self._watch.submit(self._writer.steps, logs)
        elif not self._is_told:
            self.seen(monotonic_ns())

    def told(self, step: int, at_ns: int) -> None:
        """The device finished that step then, CLOCK_MONOTONIC."""
        self._is_told = True
        self._writer.device_done(step, at_ns)
        if self.times is not None:
            self.times.done(step, at_ns)

    def seen(self, at_ns: int) -> None:
        """The host had all steps so far behind it then."""
        if self.times is not None:
            self.times.done(self._writer.steps, at_ns)

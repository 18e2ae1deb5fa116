"""An ``evaluate`` or ``predict`` of a Hugging Face ``Trainer`` that is not training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.trainers import places as at
from trainer_hooks.trainers.shadows import Method, Shadows
from trainer_hooks.trainers.tagged_run import TaggedRun
from trainer_hooks.trainers.timed_batches import TimedLoader

MODE_OF: Final = {"evaluate": at.VALIDATES, "predict": at.PREDICTS}
"""The methods that evaluate, and the mode of each."""


class StartOfEvaluation:
    """In front of the method that a ``Trainer`` calls first, whatever it is asked for.

    It stands on the trainer's clock of memory and knows no trainer, so that
    one whose last reference goes is freed at once, as without it.
    """

    def __init__(self, start: Method, tell: Callable[[], None]) -> None:
        self._start, self._tell = start, tell

    def __call__(self) -> Any:  # noqa: ANN401
        self._tell()
        return self._start()

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        """A copy goes without."""
        return getattr, (getattr(self._start, "__self__", None), "start")


class LoneEvaluation(TaggedRun):
    """Shadows the loop of one evaluation, until that returns or raises."""

    def __init__(
        self,
        ring: ProcessRing,
        pen: RingWriter,
        trainer: Any,  # noqa: ANN401
        mode: int,
    ) -> None:
        """Put it in place; the phase begins with the loop.

        Args:
            ring: Of this process.
            pen: Its writer.
            trainer: The ``Trainer``.
            mode: Validation or prediction.
        """
        super().__init__(ring, pen)
        self._mode = mode
        self._shadows = Shadows()
        self._shadows.place(trainer, "evaluation_loop", self._around_loop)

    def goes_on(self) -> bool:
        """Whether the loop was reached: the trainer may have found nothing to evaluate."""
        return super().goes_on() and self._turn is not None

    def fetch_begins(self) -> None:
        """The next batch is asked for."""
        if self.is_here:
            self._go(at.INPUT_WAIT[self._mode])

    def fetch_ends(self, batch: Any, *, is_last: bool) -> None:  # noqa: ANN401
        """It is there, and evaluated now."""
        if self.is_here:
            self._go(at.EVALUATION[self._mode])

    def _around_loop(self, method: Method) -> Method:
        def timed(dataloader: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            if not self.is_here:
                return method(dataloader, *args, **named)
            self._take_turn()
            self._go(at.EVALUATION[self._mode])
            try:
                return method(TimedLoader(dataloader, self), *args, **named)
            finally:
                self.stop()

        return timed

    def _leave(self) -> None:
        self._shadows.remove()

"""One tagged ``train()`` of a Hugging Face ``Trainer``: in place until ``stop``."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

from gpumon.core.phase import TrainingMode
from trainer_hooks.keras_fit.phase_machine import (
    BETWEEN_EPOCHS,
    CALLBACKS,
    CHECKPOINT,
    INPUT_WAIT,
    OTHER,
    PREDICT,
    START_UP,
    TRAIN,
    TRAIN_STEP,
    VALIDATION,
)
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.trainers.shadows import Shadows

Method = Callable[..., Any]

_REGIONS: Final = {
    "evaluate": (VALIDATION, int(TrainingMode.VALIDATION)),
    "predict": (PREDICT, int(TrainingMode.PREDICT)),
    "_save_checkpoint": (CHECKPOINT, TRAIN),
    "save_model": (CHECKPOINT, TRAIN),
    "training_step": (TRAIN_STEP, TRAIN),
}
_EPSILON: Final = 1e-6
"""``state.epoch`` counts in fractions of an epoch, and is rounded."""


class TrainerTagging:
    """Shadows the methods of one trainer that say where its time goes.

    The phases nest and exclude each other: after a method, the phase is again
    what it was before. An exception that leaves the outermost of them ends
    the training, and so the tagging.
    """

    def __init__(
        self,
        ring: ProcessRing,
        pen: RingWriter,
        trainer: Any,  # noqa: ANN401
        does_anything_in: Callable[[str], bool],
    ) -> None:
        """Put everything in place.

        Args:
            ring: Of this process.
            pen: Its writer.
            trainer: The ``Trainer``.
            does_anything_in: Whether any other callback does anything at the
                event of that name.
        """
        ring.adopt_thread()
        self._ring, self._pen = ring, pen
        self._does_anything_in = does_anything_in
        self._mode = TRAIN
        self._depth = self._samples = 0
        self._is_active = True
        self._is_in_epoch = False
        self._epoch: weakref.ref[Any] | None = None
        self._shadows = Shadows()
        for name, (phase, mode) in _REGIONS.items():
            self._shadows.place(trainer, name, self._region(phase, mode))
        self._shadows.place(trainer, "evaluation_loop", self._around_evaluation_loop)
        self._shadows.place(trainer.callback_handler, "call_event", self._around_events)
        self.sees_fetches = self._shadows.place(
            trainer, "get_batch_samples", self._around_get_batch_samples
        )
        self._go(START_UP, TRAIN)

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the one that trains."""
        return self._is_active and self._ring.writer_here is self._pen

    def stop(self) -> None:
        """Take everything away. Safe to call twice."""
        if not self._is_active:
            return
        self._shadows.remove()
        if self.is_here:
            self._go(OTHER, TRAIN)
        self._is_active = False

    def _region(self, phase: int, mode: int) -> Callable[[Method], Method]:
        def around(method: Method) -> Method:
            def timed(*args: Any, **named: Any) -> Any:  # noqa: ANN401
                if not self.is_here or (self._mode != TRAIN and phase != CHECKPOINT):
                    return method(*args, **named)
                before = (*self._pen.present, self._mode)
                self._mode = mode
                self._go(phase, mode)
                result = self._watched(before, method, args, named)
                if phase != TRAIN_STEP:  # what follows is clipping and the optimizer
                    self._go_back(before)
                return result

            return timed

        return around

    def _watched(
        self,
        before: tuple[int, int, int],
        method: Method,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:  # noqa: ANN401
        """Call a method; when the outermost raises, the training is over."""
        self._depth += 1
        try:
            return method(*args, **named)
        except BaseException:
            self._go_back(before)
            if self._depth == 1:
                self.stop()
            raise
        finally:
            self._depth -= 1

    def _go_back(self, before: tuple[int, int, int]) -> None:
        phase, phase_mode, self._mode = before
        self._go(phase, phase_mode)

    def _around_get_batch_samples(self, method: Method) -> Method:
        def timed(epoch_iterator: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            if not self.is_here:
                return method(epoch_iterator, *args, **named)
            self._notice_end_of(epoch_iterator)
            wanted = named.get("num_batches", args[0] if args else None)
            batches = _TimedBatches(epoch_iterator, self, wanted)
            before = (*self._pen.present, self._mode)
            self._go(INPUT_WAIT, TRAIN)
            result = self._watched(before, method, (batches, *args), named)
            self._go(TRAIN_STEP, TRAIN)
            return result

        return timed

    def _around_evaluation_loop(self, method: Method) -> Method:
        def timed(dataloader: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            if self.is_here and self._mode != TRAIN:
                dataloader = _TimedLoader(dataloader, self)
            return method(dataloader, *args, **named)

        return timed

    def _around_events(self, method: Method) -> Method:
        def timed(event: str, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            is_told = event in _AFTER_EVENT or self._does_anything_in(event)
            if not is_told or self._mode != TRAIN or not self.is_here:
                return method(event, *args, **named)
            before = (*self._pen.present, self._mode)
            self._event_begins(event, args)
            result = self._watched(before, method, (event, *args), named)
            self._event_ends(event, before)
            return result

        return timed

    def _event_begins(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "on_step_end":
            self._pen.count(1, self._samples)
            self._samples = 0
        elif event == "on_epoch_begin":
            self._pen.epoch(int((args[1].epoch or 0) + _EPSILON))
        elif event == "on_epoch_end":
            self._is_in_epoch = False
        self._go(CALLBACKS, TRAIN)

    def _event_ends(self, event: str, before: tuple[int, int, int]) -> None:
        if event == "on_train_end":
            self.stop()
        elif event in _AFTER_EVENT:
            self._go(_AFTER_EVENT[event], TRAIN)
        else:
            self._go_back(before)

    def _notice_end_of(self, epoch_iterator: Any) -> None:  # noqa: ANN401
        """An iterator that goes before its epoch has ended was left by an exception."""
        self._is_in_epoch = True
        if self._epoch is not None and self._epoch() is epoch_iterator:
            return
        try:
            self._epoch = weakref.ref(epoch_iterator, self._epoch_is_gone)
        except TypeError:  # it can have no weak references: then only methods tell
            self._epoch = None

    def _epoch_is_gone(self, _: object) -> None:
        if self._is_in_epoch:
            self.stop()

    def fetch_begins(self) -> None:
        """The next batch is asked for."""
        if self.is_here:
            self._go(INPUT_WAIT, self._mode)

    def fetch_ends(self, batch: Any, *, is_last: bool) -> None:  # noqa: ANN401
        """It is there; the last before a step, or before it is evaluated."""
        if not self.is_here:
            return
        if self._mode != TRAIN:
            self._go(VALIDATION if self._mode == _VALIDATES else PREDICT, self._mode)
            return
        self._samples += rows_of(batch)
        if is_last:
            self._go(TRAIN_STEP, TRAIN)

    def _go(self, phase: int, mode: int) -> None:
        if self._pen.present != (phase, mode):
            self._pen.enter(phase, mode)


_VALIDATES: Final = int(TrainingMode.VALIDATION)
_AFTER_EVENT: Final = {
    "on_train_begin": START_UP,
    "on_epoch_begin": INPUT_WAIT,  # workers start, and the first batch is asked for
    "on_step_end": CALLBACKS,  # logging follows, or the next batch is asked for
    "on_epoch_end": BETWEEN_EPOCHS,
    "on_train_end": OTHER,
}


class _TimedBatches:
    """An iterator over the batches of one step."""

    __slots__ = ("_asked", "_source", "_tagging", "_wanted")

    def __init__(self, source: Iterator[Any], tagging: TrainerTagging, wanted: object) -> None:
        self._source, self._tagging, self._wanted = source, tagging, wanted
        self._asked = 0

    def __iter__(self) -> _TimedBatches:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        self._tagging.fetch_begins()
        batch = next(self._source)
        self._asked += 1
        self._tagging.fetch_ends(batch, is_last=self._asked == self._wanted)
        return batch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._source, name)


class _TimedLoader:
    """The loader of an evaluation: the same, its class included, but for the clock."""

    def __init__(self, loader: Any, tagging: TrainerTagging) -> None:  # noqa: ANN401
        self._loader, self._tagging = loader, tagging

    def __iter__(self) -> Iterator[Any]:
        self._tagging.fetch_begins()
        for batch in self._loader:
            self._tagging.fetch_ends(batch, is_last=True)
            yield batch
            self._tagging.fetch_begins()
        self._tagging.fetch_ends(None, is_last=True)

    def __len__(self) -> int:
        return len(self._loader)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._loader)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):  # asked of a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._loader, name)

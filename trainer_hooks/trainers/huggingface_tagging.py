"""One tagged ``train()`` of a Hugging Face ``Trainer``, or an ``evaluate`` outside of one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from trainer_hooks.ring import phase_modes as modes
from trainer_hooks.ring.guard import passes_through, quietly
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps.tap import rows_of
from trainer_hooks.trainers.callback_times import (
    NO_CALLBACK,
    PHASE_EVENTS,
    EventCallbacks,
    Slots,
    TimedCallbacks,
)
from trainer_hooks.trainers.loader_facts import loader_facts, report_loader
from trainer_hooks.trainers.patching import Method, PatchedMethods, TimedBatches, TimedLoader
from trainer_hooks.trainers.tagged_run import TaggedRun

# Private names of the Trainer, as of transformers 4.46 and 5. Without one, fewer phases are seen.
MEMORY: Final = "_memory_tracker"
"""The first thing an evaluation reads: without it, one outside ``train`` is not seen."""
SAVES_CHECKPOINT: Final = "_save_checkpoint"
"""Writes a checkpoint in the loop; without it, that is ``callbacks``."""
MAY_CATCH: Final = ("_maybe_log_save_evaluate", "_evaluate")
"""Called from the loop: in a user's subclass, an error inside may be caught there."""

MODE_OF: Final = {"evaluate": modes.VALIDATION_MODE, "predict": modes.PREDICT_MODE}
"""The methods that evaluate, and the mode of each."""
_AFTER_EVENT: Final = {
    "on_train_begin": modes.START_UP,
    # Workers start, and the first batch is requested.
    "on_epoch_begin": modes.INPUT_WAIT[modes.TRAIN_MODE],
    "on_step_end": modes.CALLBACKS,  # logging follows, or the next batch is requested
    "on_epoch_end": modes.BETWEEN_EPOCHS,
}
_EPSILON: Final = 1e-6
"""``state.epoch`` counts in fractions of an epoch, and is rounded."""


class _Outermost:
    """Around the trainer's calls, however deep: an error that leaves the outermost ends the run."""

    __slots__ = ("_depth", "_run")

    def __init__(self, run: TaggedRun) -> None:
        self._run, self._depth = run, 0

    @property
    def is_entered(self) -> bool:
        return self._depth > 0

    @passes_through
    def __enter__(self) -> None:
        self._depth += 1

    @passes_through
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._depth -= 1
        if kind is not None and self._depth == 0:
            quietly(self._run.stop)


class _PatchedRun(TaggedRun):
    """A run observed by patched methods, until it is over.

    Each fetch belongs to the trainer's current mode.
    """

    def __init__(self, ring: ProcessRing, writer: RingWriter, mode: int) -> None:
        super().__init__(ring, writer)
        self._mode = mode
        self._patched = PatchedMethods()
        self._has_reported_validation = False

    def timed_loader(self, loader: Any) -> TimedLoader:  # noqa: ANN401
        """Wrap the loader of an evaluation; the first of a validation is described in the ring."""
        if self._mode == modes.VALIDATION_MODE and not self._has_reported_validation:
            self._has_reported_validation = True
            report_loader(loader_facts(loader), validates=True)
        return TimedLoader(loader, self)

    def fetch_begins(self) -> None:
        if self.is_here:
            self._go(modes.INPUT_WAIT[self._mode])

    def fetch_ends(self, batch: Any, *, is_last: bool) -> None:  # noqa: ANN401
        if self.is_here:
            self._go(modes.EVALUATION[self._mode])

    def _leave(self) -> None:
        self._patched.remove()


class HuggingFaceTagging(_PatchedRun):
    """Patches the methods of one trainer that show where its time goes.

    Phases nest: after a method, the phase before it continues. Training inside a method, with the
    same trainer or another, is no step of this run. An exception that leaves the outermost method
    ends the run.
    """

    def __init__(
        self,
        ring: ProcessRing,
        writer: RingWriter,
        trainer: Any,  # noqa: ANN401
        events: EventCallbacks,
    ) -> None:
        super().__init__(ring, writer, modes.TRAIN_MODE)
        self._events = events
        self._samples = 0
        self._outermost = _Outermost(self)
        self._is_in_epoch = False
        self._epoch: weakref.ref[Any] | None = None
        for name, mode in MODE_OF.items():
            self._patched.install(trainer, name, self._inside(modes.EVALUATION[mode], mode))
        for name in (SAVES_CHECKPOINT, "save_model"):
            self._patched.install(trainer, name, self._inside(modes.CHECKPOINT))
        for name in MAY_CATCH:
            self._patched.install(trainer, name, self._around_inner_calls)
        self._patched.install(trainer, "training_step", self._around_training_step)
        self._patched.install(trainer, "evaluation_loop", self._around_evaluation_loop)
        self._handler = handler = trainer.callback_handler
        self._patched.install(handler, "call_event", self._around_events)
        self.sees_fetches = self._patched.install(
            trainer, "get_batch_samples", self._around_get_batch_samples
        )
        self._begin_run()
        self._go(modes.START_UP)

    def is_running(self) -> bool:
        """Whether it is going on; an error between two steps may go unnoticed."""
        return super().is_running() and self._outermost.is_entered

    def _inside(
        self, phase_mode: modes.PhaseMode, mode: int | None = None
    ) -> Callable[[Method], Method]:
        """Patch a method so that it has its own phase; with ``mode`` it evaluates."""

        def around(method: Method) -> Method:
            @passes_through
            def timed(*args: Any, **named: Any) -> Any:  # noqa: ANN401
                before = quietly(self._method_begins, phase_mode, mode)
                if before is None:
                    return method(*args, **named)
                try:
                    with self._outermost:
                        try:
                            return method(*args, **named)
                        finally:
                            if mode is not None:
                                quietly(self.callbacks.end)
                finally:
                    quietly(self._go_back, *before)

            return timed

        return around

    def _method_begins(
        self, phase_mode: modes.PhaseMode, mode: int | None
    ) -> tuple[modes.PhaseMode, int] | None:
        """Change the phase; returns the previous phase and mode."""
        is_nested = mode is not None and self._mode != modes.TRAIN_MODE
        if is_nested or not self.is_here:
            return None
        before = self._writer.present, self._mode
        if mode is not None:
            self._mode = mode
        self._go(phase_mode)
        if mode is not None:
            self.callbacks.begin(NO_CALLBACK)  # a callback may be running it
        return before

    def _go_back(self, phase_mode: modes.PhaseMode, mode: int) -> None:
        self._mode = mode
        if self.is_here:
            self._go(phase_mode)

    def _around_inner_calls(self, method: Method) -> Method:
        @passes_through
        def watched(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            with self._outermost:
                return method(*args, **named)

        return watched

    def _around_training_step(self, method: Method) -> Method:
        watched = self._around_inner_calls(method)

        @passes_through
        def timed(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            quietly(self._step_is_called)
            return watched(*args, **named)

        return timed

    def _step_is_called(self) -> None:
        if not self.sees_fetches and self.is_here:
            self._go(modes.TRAIN_STEP)

    def _around_get_batch_samples(self, method: Method) -> Method:
        @passes_through
        def timed(epoch_iterator: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            wanted = args[0] if args else named.get("num_batches")
            batches = quietly(self._fetches_begin, epoch_iterator, wanted)
            if batches is None:
                return method(epoch_iterator, *args, **named)
            with self._outermost:
                result = method(batches, *args, **named)
            quietly(self._go, modes.TRAIN_STEP)
            return result

        return timed

    def _fetches_begin(self, epoch_iterator: Any, wanted: object) -> TimedBatches | None:  # noqa: ANN401
        if not self.is_here or self._outermost.is_entered:
            return None
        self._is_in_epoch = True
        if self._epoch is None or self._epoch() is not epoch_iterator:
            self._notice_end_of(epoch_iterator)
        return TimedBatches(epoch_iterator, self, wanted)

    def _around_evaluation_loop(self, method: Method) -> Method:
        @passes_through
        def timed(dataloader: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            loader = quietly(self._loader_in_training, dataloader)
            return method(dataloader if loader is None else loader, *args, **named)

        return timed

    def _loader_in_training(self, loader: Any) -> TimedLoader | None:  # noqa: ANN401
        is_evaluated = self._mode != modes.TRAIN_MODE and self.is_here
        return self.timed_loader(loader) if is_evaluated else None

    def _around_events(self, method: Method) -> Method:
        slots_at, handler = cache(self._slots_at), self._handler

        def slots_here(event: str) -> Slots | None:
            slots = slots_at(event, len(handler.callbacks))
            return slots if self.is_here else None

        def phase_before(event: str, args: tuple[Any, ...]) -> modes.PhaseMode | None:
            is_aside = event in PHASE_EVENTS and self._outermost.is_entered
            is_in_loop = not is_aside and self._mode == modes.TRAIN_MODE
            return self._event_begins(event, args) if is_in_loop else None

        @passes_through
        def timed(event: str, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            slots = quietly(slots_here, event)
            if slots is None:
                return method(event, *args, **named)
            if event == "on_log":
                named = quietly(self._with_ratios, named) or named
            before = quietly(phase_before, event, args)
            if before is None:
                return self._round(slots, method, event, args, named)
            with self._outermost:
                result = self._round(slots, method, event, args, named)
            quietly(self._event_ends, event, before)
            return result

        return timed

    def _with_ratios(self, named: dict[str, Any]) -> dict[str, Any]:
        """Add ratios to a copy of the logs: the trainer returns the original."""
        all_logs = dict(named.get("logs") or {})
        if self.ratios is None or self._mode != modes.TRAIN_MODE or "loss" not in all_logs:
            return named
        self.ratios.give(all_logs.update)
        return {**named, "logs": all_logs}

    @passes_through
    def _round(
        self,
        slots: Slots,
        method: Method,
        event: str,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:  # noqa: ANN401
        """Let the handler call its callbacks, timing those that have slots."""
        timed = quietly(self._place_callbacks, slots) if slots else None
        if timed is None:
            return method(event, *args, **named)
        try:
            return method(event, *args, **named)
        finally:
            quietly(self._give_back_callbacks, timed)

    def _place_callbacks(self, slots: Slots) -> TimedCallbacks:
        timed = TimedCallbacks(self._handler.callbacks, slots, self.callbacks)
        self._handler.callbacks = timed
        return timed

    def _give_back_callbacks(self, timed: TimedCallbacks) -> None:
        if self._handler.callbacks is timed:
            self._handler.callbacks = timed.give_back()

    def _slots_at(self, event: str, _: int) -> Slots | None:
        """Return the slots of an event; looked up again when the number of callbacks changes."""
        try:
            return self._events.of(event, self._handler.callbacks, self.callbacks.slot_of)
        except Exception as error:  # noqa: BLE001
            self.fail(error)
            return None

    def _event_begins(self, event: str, args: tuple[Any, ...]) -> modes.PhaseMode:
        before = self._writer.present
        try:
            self._count(event, args)
        except Exception as error:  # noqa: BLE001
            self.fail(error)
            return before
        if before != modes.CALLBACKS:
            self._writer.enter(*modes.CALLBACKS)
        return before

    def _count(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "on_step_end":
            self.step_ends()
            self._writer.count(1, self._samples)
            self._samples = 0
        elif event == "on_epoch_begin":
            self._writer.epoch(int((args[1].epoch or 0) + _EPSILON))
        elif event == "on_epoch_end":
            self._is_in_epoch = False

    def _event_ends(self, event: str, before: modes.PhaseMode) -> None:
        if event == "on_train_end":
            self.stop()
        elif self.is_here:
            self._go(_AFTER_EVENT.get(event, before))

    def _notice_end_of(self, epoch_iterator: Any) -> None:  # noqa: ANN401
        """An iterator that is freed before its epoch has ended was left by an exception."""
        try:
            self._epoch = weakref.ref(epoch_iterator, self._epoch_is_gone)
        except TypeError:  # it cannot be weakly referenced: then only methods show it
            self._epoch = None

    @passes_through
    def _epoch_is_gone(self, _: object) -> None:
        if self._is_in_epoch:
            self.stop()

    def fetch_ends(self, batch: Any, *, is_last: bool) -> None:  # noqa: ANN401
        if self._mode != modes.TRAIN_MODE:
            super().fetch_ends(batch, is_last=is_last)
        elif self.is_here:
            self._samples += rows_of(batch)
            if is_last:
                self.step_begins()
                self._writer.enter(*modes.TRAIN_STEP)


class StartOfEvaluation:
    """Replaces the method that a ``Trainer`` calls first in any evaluation.

    It is on the trainer's memory tracker and holds no trainer, so that a trainer is freed as
    without it.
    """

    def __init__(self, start: Method, report: Callable[[], None]) -> None:
        self._start, self._report = start, report

    @passes_through
    def __call__(self) -> Any:  # noqa: ANN401
        self._report()
        return self._start()

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        """A copy is the original method."""
        return getattr, (getattr(self._start, "__self__", None), "start")


class LoneEvaluation(_PatchedRun):
    """Patches the loop of one evaluation, until that returns or raises."""

    def __init__(
        self,
        ring: ProcessRing,
        writer: RingWriter,
        trainer: Any,  # noqa: ANN401
        mode: int,
    ) -> None:
        """Patch; the phase begins with the loop. ``mode``: validation or prediction."""
        super().__init__(ring, writer, mode)
        self._patched.install(trainer, "evaluation_loop", self._around_loop)

    def is_running(self) -> bool:
        """Whether the loop was reached: there may be nothing to evaluate."""
        return super().is_running() and self._nested is not None

    def _around_loop(self, method: Method) -> Method:
        @passes_through
        def timed(dataloader: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            loader = quietly(self._loop_begins, dataloader)
            if loader is None:
                return method(dataloader, *args, **named)
            try:
                return method(loader, *args, **named)
            finally:
                quietly(self.stop)

        return timed

    def _loop_begins(self, loader: Any) -> TimedLoader | None:  # noqa: ANN401
        if not self.is_here:
            return None
        self._begin_run()
        self._go(modes.EVALUATION[self._mode])
        return self.timed_loader(loader)

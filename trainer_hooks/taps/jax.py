"""Keras on JAX: the train function fetches its batches itself, by ``next(iterator)``.

JAX reports tracing, lowering and compiling through its own monitoring.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any, Final

import jax

from trainer_hooks.ring.guard import guards_itself, passes_through, quietly
from trainer_hooks.ring.phase_modes import TRAIN_MODE
from trainer_hooks.taps.phase_machine import Interrupted
from trainer_hooks.taps.tap import FetchedBatches, StepListener, Tap, mark_wait_as_gross

StepFunction = Callable[[Any, Any], tuple[Any, Any]]


class JaxTap(Tap):
    """Wraps the step functions, gives them a timed iterator, and listens for compilations."""

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, listener)
        self._has_gross_wait = getattr(model, "steps_per_execution", 1) != 1
        self._compiled = listener.guard.wrap(listener.compiled)
        JAX_COMPILING.listen(self._compiled)

    def install(self, mode: int) -> None:
        super().install(mode)
        if mode == TRAIN_MODE and self._has_gross_wait:
            mark_wait_as_gross()

    def remove(self) -> None:
        """Restore the model and release it: JAX keeps listeners for good."""
        super().remove()
        JAX_COMPILING.leave(self._compiled)

    def _timed(self, function: StepFunction, mode: int) -> StepFunction:
        if mode == TRAIN_MODE:
            return _train(function, self._listener)
        return _interrupting(function, mode, self._listener)


_NO_BATCHES: Iterator[Any] = iter(())


class JaxTrainingBatches(FetchedBatches):
    """In an execution of several steps, the waits after the first are gross.

    The device has a step by then, and JAX reports only the end of the whole execution.
    """

    fetches_outside_steps = True

    __slots__ = ()

    def _fetch_finds_nothing(self) -> None:
        if self.fetched:
            self.machine.fetch_end()
        else:
            self.machine.fetch_exhausted()


def _train(function: StepFunction, listener: StepListener) -> StepFunction:
    batches: JaxTrainingBatches | None = None
    guard = listener.guard
    failed = guard.wrap(listener.failed)

    @guards_itself
    def train(state: Any, iterator: Any) -> tuple[Any, Any]:  # noqa: ANN401
        nonlocal batches
        timed = None
        try:
            machine = listener.machine_here
            is_own = machine is not None and machine.is_calling_back and listener.is_calling_back()
            # An older Keras passes a fetched batch: that wait is not seen.
            if machine is not None and not is_own and hasattr(iterator, "__next__"):
                if batches is None:
                    batches = JaxTrainingBatches(iterator, machine, guard)
                batches.source = iterator
                batches.fetched = batches.samples = 0
                timed = batches
        except Exception as error:  # noqa: BLE001 (training goes on)
            guard.fail(error)
        if timed is None:
            return function(state, iterator)
        try:
            result = function(state, timed)
        except StopIteration:
            raise
        except BaseException:
            failed()
            raise
        finally:
            timed.source = _NO_BATCHES  # do not keep the source alive
        try:
            if guard.is_intact:
                timed.machine.dispatched(timed.fetched, timed.samples)
        except Exception as error:  # noqa: BLE001
            guard.fail(error)
        return result

    return train


def _interrupting(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    def interrupt(iterator: Any) -> tuple[FetchedBatches, Interrupted | None] | None:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None or not hasattr(iterator, "__next__"):
            return None
        return FetchedBatches(iterator, machine, listener.guard), machine.interrupt(mode)

    def resume(batches: FetchedBatches, before: Interrupted | None) -> None:
        batches.machine.resume(before)

    begins, ends = listener.guard.wrap(interrupt), listener.guard.wrap(resume)

    @passes_through
    def interrupting(state: Any, iterator: Any) -> tuple[Any, Any]:  # noqa: ANN401
        timed = begins(iterator)
        if timed is None:
            return function(state, iterator)
        try:
            return function(state, timed[0])
        finally:
            ends(*timed)

    return interrupting


_EVENTS: Final = frozenset(
    {
        "/jax/core/compile/jaxpr_trace_duration",
        "/jax/core/compile/jaxpr_to_mlir_module_duration",
        "/jax/core/compile/backend_compile_duration",
    }
)
_MOST_SPANS: Final = 256


class CoveredTime:
    """The length of the union of spans, each reported when it ends.

    Tracing one function traces others inside it, and JAX reports both.

    >>> covered = CoveredTime()
    >>> covered.add(10, 20), covered.add(0, 30)
    (10, 20)
    """

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []  # disjoint, oldest first

    def add(self, start_ns: int, end_ns: int) -> int:
        """Add a span that ended last and return how much of it is new, in nanoseconds."""
        known_ns = 0
        first_ns = start_ns
        while self._spans and self._spans[-1][1] > start_ns:
            old_start_ns, old_end_ns = self._spans.pop()
            known_ns += min(old_end_ns, end_ns) - max(old_start_ns, start_ns)
            first_ns = min(first_ns, old_start_ns)
        self._spans.append((first_ns, end_ns))
        del self._spans[:-_MOST_SPANS]
        return max(0, end_ns - start_ns - known_ns)


class JaxCompiling:
    """Reports compilations to one listener at a time; JAX keeps registered functions for good.

    The listener receives nanoseconds, on the thread that compiled.
    """

    def __init__(self) -> None:
        self._listener: Callable[[int], None] | None = None
        self._covered = CoveredTime()
        self._is_registered = False

    def listen(self, listener: Callable[[int], None]) -> None:
        """Report to ``listener`` from now on, where JAX has such monitoring."""
        self._listener = listener
        if not self._is_registered:
            self._is_registered = True
            with contextlib.suppress(Exception):
                jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def leave(self, listener: Callable[[int], None]) -> None:
        """Report to ``listener`` no longer, unless another has replaced it."""
        if self._listener == listener:
            self._listener = None

    @passes_through
    def _on_event(self, event: str, duration_s: float, **_: object) -> None:
        quietly(self._report, event, duration_s)

    def _report(self, event: str, duration_s: float) -> None:
        listener = self._listener
        if listener is None or event not in _EVENTS:
            return
        now_ns = monotonic_ns()
        listener(self._covered.add(now_ns - round(duration_s * 1e9), now_ns))


JAX_COMPILING: Final = JaxCompiling()
"""The one of this process."""

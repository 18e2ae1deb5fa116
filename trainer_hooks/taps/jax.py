"""Keras on JAX: it waits inside the train function, which calls ``next(iterator)`` itself.

How long JAX traced, lowered and compiled, it tells by its own monitoring.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any, Final

import jax

from trainer_hooks.ring.guard import Guard, guards_itself, passes_through, quietly
from trainer_hooks.ring.phase_modes import TRAIN_MODE
from trainer_hooks.taps.phase_machine import Interrupted, PhaseMachine
from trainer_hooks.taps.tap import StepListener, Tap, mark_wait_as_gross, rows_of

StepFunction = Callable[[Any, Any], tuple[Any, Any]]


class JaxTap(Tap):
    """Goes around the step functions, hands them a timed iterator, and hears of compiling."""

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, listener)
        self._has_gross_wait = getattr(model, "steps_per_execution", 1) != 1
        self._compiled = listener.guard.wrap(listener.compiled)
        JAX_COMPILING.listen(self._compiled)

    def place(self, mode: int) -> None:
        super().place(mode)
        if mode == TRAIN_MODE and self._has_gross_wait:
            mark_wait_as_gross()

    def remove(self) -> None:
        """Leave the model as it was, and let go of it: JAX keeps what listens for good."""
        super().remove()
        JAX_COMPILING.leave(self._compiled)

    def _timed(self, function: StepFunction, mode: int) -> StepFunction:
        if mode == TRAIN_MODE:
            return _train(function, self._listener)
        return _interrupting(function, mode, self._listener)


_NO_BATCHES: Iterator[Any] = iter(())


class JaxBatches:
    """An iterator over batches whose every ``next()`` is a wait for input.

    Attributes:
        source: Where they come from.
        machine: The rules.
        fetched: Batches since it was last set to 0.
        samples: Samples in them, where that could be seen.
    """

    waits_beside_steps = False

    __slots__ = ("_exhausted", "_guard", "fetched", "machine", "samples", "source")

    def __init__(self, source: Iterator[Any], machine: PhaseMachine, guard: Guard) -> None:
        self.source = source
        self.machine = machine
        self.fetched = self.samples = 0
        self._guard = guard
        self._exhausted = guard.wrap(self._fetch_finds_nothing)

    @passes_through
    def __iter__(self) -> JaxBatches:
        return self

    @guards_itself
    def __next__(self) -> Any:  # noqa: ANN401
        guard, machine = self._guard, self.machine
        try:
            if guard.is_intact:
                if self.fetched and self.waits_beside_steps:
                    machine.fetch_beside_begin()
                else:
                    machine.fetch_begin()
        except Exception as error:  # noqa: BLE001 (the training goes on)
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


class JaxTrainingBatches(JaxBatches):
    """... and in an execution of several steps, the waits after the first are gross.

    The device has a step by then, and nobody says whether it is still at work
    on it: JAX tells only when all steps of an execution are done.
    """

    waits_beside_steps = True

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
            # An older Keras hands over what it fetched: a wait that was not seen is not told.
            if machine is not None and not is_own and hasattr(iterator, "__next__"):
                if batches is None:
                    batches = JaxTrainingBatches(iterator, machine, guard)
                batches.source = iterator
                batches.fetched = batches.samples = 0
                timed = batches
        except Exception as error:  # noqa: BLE001 (the training goes on)
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
            timed.source = _NO_BATCHES  # whoever waits for its end need not wait for us
        try:
            if guard.is_intact:
                timed.machine.dispatched(timed.fetched, timed.samples)
        except Exception as error:  # noqa: BLE001
            guard.fail(error)
        return result

    return train


def _interrupting(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    def interrupt(iterator: Any) -> tuple[JaxBatches, Interrupted | None] | None:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None or not hasattr(iterator, "__next__"):
            return None
        return JaxBatches(iterator, machine, listener.guard), machine.interrupt(mode)

    def resume(batches: JaxBatches, before: Interrupted | None) -> None:
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
    """The length of the union of spans that are reported as each ends.

    Tracing one function traces others inside it, and JAX reports both.

    >>> covered = CoveredTime()
    >>> covered.add(10, 20), covered.add(0, 30)
    (10, 20)
    """

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []  # disjoint, oldest first

    def add(self, start_ns: int, end_ns: int) -> int:
        """Take a span that ended last; how much of it is new, in nanoseconds."""
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
    """Tells one listener at a time; JAX keeps what is registered for good, so there is one of it.

    The listener is called with nanoseconds, on the thread that compiled.
    """

    def __init__(self) -> None:
        self._tell: Callable[[int], None] | None = None
        self._covered = CoveredTime()
        self._is_registered = False

    def listen(self, tell: Callable[[int], None]) -> None:
        """Tell ``tell`` from now on, where this JAX has such monitoring."""
        self._tell = tell
        if not self._is_registered:
            self._is_registered = True
            with contextlib.suppress(Exception):
                jax.monitoring.register_event_duration_secs_listener(self._take)

    def leave(self, tell: Callable[[int], None]) -> None:
        """Tell ``tell`` no more, and let go of it; another that has come since is told on."""
        if self._tell == tell:
            self._tell = None

    @passes_through
    def _take(self, event: str, duration_s: float, **_: object) -> None:
        quietly(self._tell_of, event, duration_s)

    def _tell_of(self, event: str, duration_s: float) -> None:
        tell = self._tell
        if tell is None or event not in _EVENTS:
            return
        now_ns = monotonic_ns()
        tell(self._covered.add(now_ns - round(duration_s * 1e9), now_ns))


JAX_COMPILING: Final = JaxCompiling()
"""The one of this process."""

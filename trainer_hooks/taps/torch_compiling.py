"""How long torch traced and compiled, from dynamo's callbacks.

Imports neither torch nor Keras: other trainers use it, too.
"""

from __future__ import annotations

import contextlib
import sys
from time import monotonic_ns
from typing import Any, Final, Protocol

from trainer_hooks.ring.guard import passes_through, quietly

DYNAMO: Final = "torch._dynamo.callback"
"""The module with the callbacks; it is imported before anything is compiled."""


class StepPhases(Protocol):
    """Switches between compiling and the step that it happens in."""

    def compile_begin(self) -> None: ...
    def compile_end(self) -> None: ...


class CompilesInSteps(Protocol):
    """Receives compilations, like a tap's ``StepListener``."""

    @property
    def machine_here(self) -> StepPhases | None: ...
    def compiled(self, duration_ns: int) -> None: ...


class CompileClock:
    """Reports compilations inside steps, from ``listen`` until ``leave``.

    One on the training thread is reported as it begins. Those on other threads, where torch runs
    the backward pass on a GPU, are summed until the step ends. A torch without such callbacks
    reports nothing.

    Attributes:
        is_in_step: Whether a training step is running; set by others.
        elsewhere_ns: What other threads compiled since the last step's end, nanoseconds.
    """

    def __init__(self, listener: CompilesInSteps) -> None:
        self.is_in_step = False
        self._listener = listener
        self._is_compiling = False
        self._began_ns = self.elsewhere_ns = 0
        self._handler: Any = None

    def listen(self) -> None:
        """Report from now on. Safe to call twice."""
        if self._handler is not None:
            return
        with contextlib.suppress(Exception):  # another torch may call it otherwise
            handler = sys.modules[DYNAMO].callback_handler
            handler.register_start_callback(self._begin)
            self._handler = handler
            handler.register_end_callback(self._end)

    def leave(self) -> None:
        """Stop reporting. Safe to call twice."""
        handler, self._handler = self._handler, None
        if handler is None:
            return
        # ``torch._dynamo.reset()`` forgets its callbacks by itself.
        with contextlib.suppress(Exception):
            handler.remove_start_callback(self._begin)
        with contextlib.suppress(Exception):
            handler.remove_end_callback(self._end)

    def end_step(self) -> None:
        """End a training step and report what other threads compiled for it."""
        self.is_in_step = False
        if self.elsewhere_ns:
            self._listener.compiled(self.elsewhere_ns)
            self.elsewhere_ns = 0

    @passes_through
    def _begin(self, *_: object) -> None:
        quietly(self._begins)

    @passes_through
    def _end(self, *_: object) -> None:
        quietly(self._ends)

    def _begins(self) -> None:
        if not self.is_in_step:
            return
        machine = self._listener.machine_here
        if machine is None:
            self._began_ns = monotonic_ns()
        else:
            machine.compile_begin()
            self._is_compiling = True

    def _ends(self) -> None:
        machine = self._listener.machine_here
        if machine is None:
            if self._began_ns:
                self.elsewhere_ns += monotonic_ns() - self._began_ns
                self._began_ns = 0
        elif self._is_compiling:
            self._is_compiling = False
            machine.compile_end()

"""How long torch traced and compiled, from the callbacks that dynamo has for it."""

from __future__ import annotations

import contextlib
import sys
from time import monotonic_ns
from typing import Any, Final

_DYNAMO_CALLBACKS: Final = "torch._dynamo.callback"


class CompileClock:
    """Adds up the compilations of this process, on whatever thread, until ``leave``.

    A torch without such callbacks, or one that has not loaded its compiler,
    compiles nothing that could be told.

    Attributes:
        spent_ns: Nanoseconds since somebody last set it to 0.
    """

    def __init__(self) -> None:
        self.spent_ns = 0
        self._began_ns: int | None = None
        self._handler: Any = None

    def listen(self) -> None:
        """Add up from now on. Safe to call twice."""
        if self._handler is not None:
            return
        with contextlib.suppress(Exception):  # another torch may call it otherwise
            handler = sys.modules[_DYNAMO_CALLBACKS].callback_handler
            handler.register_start_callback(self._begin)
            self._handler = handler
            handler.register_end_callback(self._end)

    def leave(self) -> None:
        """Add up no more. Safe to call twice."""
        handler, self._handler = self._handler, None
        if handler is None:
            return
        # ``torch._dynamo.reset()`` forgets its callbacks by itself.
        with contextlib.suppress(Exception):
            handler.remove_start_callback(self._begin)
        with contextlib.suppress(Exception):
            handler.remove_end_callback(self._end)

    def _begin(self, *_: object) -> None:
        self._began_ns = monotonic_ns()

    def _end(self, *_: object) -> None:
        if self._began_ns is not None:
            self.spent_ns += monotonic_ns() - self._began_ns
            self._began_ns = None

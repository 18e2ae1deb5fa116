"""How long JAX traced, lowered and compiled, from its own monitoring."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

import jax

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

    def _take(self, event: str, duration_s: float, **_: object) -> None:
        tell = self._tell
        if tell is None or event not in _EVENTS:
            return
        now_ns = monotonic_ns()
        tell(self._covered.add(now_ns - round(duration_s * 1e9), now_ns))


JAX_COMPILING: Final = JaxCompiling()
"""The one of this process."""

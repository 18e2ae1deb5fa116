"""Wrap what fetches a batch from a TensorFlow iterator, and attribute waits in a graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from threading import Lock, get_ident
from typing import Any, Final, NamedTuple

from trainer_hooks.ring.guard import passes_through, quietly

_METHODS: Final = ("get_next", "get_next_as_optional", "__next__")
"""How a step may fetch."""

Fetch = Callable[[], Any]
Around = Callable[[Fetch], Any]
"""Receives a fetch and makes it."""


class FetchPatch:
    """Methods of one class of iterators, wrapped while any thread wants that.

    The class is shared: several runs may patch it at once, and begin and end in any order.
    Each sees its own thread's fetches only, the first puts the patch on and the last takes it off;
    what others have put over it meanwhile stays.
    """

    def __init__(self, kind: type[Any]) -> None:
        """Change nothing yet. ``patch_of_iterators`` keeps one patch per class."""
        self._kind = kind
        self._around: dict[int, Around] = {}  # by thread
        self._users = 0
        self._lock = Lock()

    @passes_through
    def call(self, function: Callable[[Any], Any], iterator: Any, around: Around) -> Any:  # noqa: ANN401
        """Call ``function(iterator)``; this thread's fetches inside go through ``around``."""
        before = quietly(self._begins, around)
        try:
            return function(iterator)
        finally:
            quietly(self._ends, before)

    def _begins(self, around: Around) -> Around | None:
        """Return the previous wrapper of this thread's fetches."""
        thread = get_ident()
        with self._lock:
            before = self._around.get(thread)
            self._around[thread] = around
            self._users += 1
            self._install()
        return before

    def _ends(self, before: Around | None) -> None:
        thread = get_ident()
        with self._lock:
            if before is None:
                self._around.pop(thread, None)
            else:
                self._around[thread] = before
            self._users = max(0, self._users - 1)  # a fork may have set it to 0
            if not self._users:
                self._take_off()

    def forget(self) -> None:
        """Take the patch off in a forked child, whose one thread trains no more."""
        self._lock = Lock()
        self._around.clear()
        self._users = 0
        self._take_off()

    def _install(self) -> None:
        for name in _METHODS:
            present = vars(self._kind).get(name)
            if present is not None and not self._is_ours(present):
                setattr(self._kind, name, self._dispatching(present))

    def _take_off(self) -> None:
        for name in _METHODS:
            present = vars(self._kind).get(name)
            if self._is_ours(present):
                setattr(self._kind, name, present.bare)

    def _is_ours(self, method: Any) -> bool:  # noqa: ANN401
        return getattr(method, "patch", None) is self

    def _dispatching(self, bare: Callable[..., Any]) -> Any:  # noqa: ANN401
        around_of = self._around

        @passes_through
        def fetch(iterator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            thread = get_ident()
            around = around_of.pop(thread, None)  # nested fetches are not timed twice
            if around is None:
                return bare(iterator, *args, **kwargs)
            try:
                return around(partial(bare, iterator, *args, **kwargs))
            finally:
                around_of[thread] = around

        method: Any = fetch
        method.bare, method.patch = bare, self
        return method


def patch_of_iterators() -> FetchPatch:
    """Return the one patch of the iterators that ``fit`` passes to a step.

    Raises:
        ImportError: This TensorFlow keeps its iterators elsewhere.
        KeyError: They fetch in another way.
    """
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator

    for name in _METHODS:
        vars(OwnedIterator)[name]
    with _PATCHES_LOCK:
        return _PATCHES.setdefault(OwnedIterator, FetchPatch(OwnedIterator))


_PATCHES: Final[dict[type[Any], FetchPatch]] = {}
_PATCHES_LOCK: Final = Lock()


def _forget_in_child() -> None:
    for patch in _PATCHES.values():
        patch.forget()


os.register_at_fork(after_in_child=_forget_in_child)


SPACING_NS: Final = 5_000_000
"""A reading costs some 20 us: this often, it is below half a percent of the run."""


class Totals(NamedTuple):
    """What the graph has summed since it was created.

    Attributes:
        wait_s: Time spent fetching batches, in seconds.
        batches: Batches fetched.
        rows: Samples in them, where known.
    """

    wait_s: float
    batches: int
    rows: int


class Execution(NamedTuple):
    """What is reported for one execution.

    Attributes:
        wait_ns: Wait for input inside it, at most its own length.
        steps: Batches it trained on.
        samples: Samples in them, or in earlier ones not reported yet.
    """

    wait_ns: int
    steps: int
    samples: int


class Accounts:
    """Reads the totals at most every ``SPACING_NS`` and spreads them evenly.

    A longer execution gets its own reading. Several shorter ones share one: their wait is
    attributed to as many that follow, so that no execution waits longer than it took.
    """

    def __init__(self, read: Callable[[], Totals], batches_an_execution: int) -> None:
        """Begin at the present totals."""
        self._read = read
        self._batches_an_execution = batches_an_execution
        self._before = self._base = read()
        self._read_at_ns = -SPACING_NS
        self._executions = 0  # since the last reading
        self._owed_ns = self._share_ns = 0
        self._batches = self._reported = 0
        self._samples = 0  # read, but not reported yet

    def executed(self, took_ns: int, now_ns: int) -> Execution:
        """Account for an execution that is over.

        Args:
            took_ns: Its length.
            now_ns: CLOCK_MONOTONIC at its end.
        """
        self._executions += 1
        self._batches += self._batches_an_execution
        samples = 0
        if now_ns - self._read_at_ns >= SPACING_NS:
            samples = self._samples + self._take_reading()
            self._samples = 0
            self._read_at_ns = now_ns
        wait_ns = min(self._owed_ns, self._share_ns, took_ns)
        self._owed_ns -= wait_ns
        steps = max(0, self._batches - self._reported)
        self._reported += steps
        return Execution(wait_ns, steps, samples)

    def found_nothing(self, took_ns: int) -> int:
        """Account for an execution that found no batch: its wait belongs to no other.

        Args:
            took_ns: Its length.

        Returns:
            Nanoseconds that it waited, at most its own length.
        """
        executions, samples = self._executions, self._take_reading()
        self._samples += samples
        wait_ns = min(self._owed_ns, took_ns)
        self._owed_ns -= wait_ns
        self._share_ns = -(-self._owed_ns // max(1, executions))
        return wait_ns

    def _take_reading(self) -> int:
        totals, before = self._read(), self._before
        self._before = totals
        self._owed_ns += max(0, round((totals.wait_s - before.wait_s) * 1e9))
        self._share_ns = -(-self._owed_ns // max(1, self._executions))
        self._executions = 0
        self._batches = totals.batches - self._base.batches
        return max(0, totals.rows - before.rows)

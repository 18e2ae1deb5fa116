"""Wrap what fetches a batch from a TensorFlow iterator, per thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from threading import Lock, get_ident
from typing import Any, Final

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

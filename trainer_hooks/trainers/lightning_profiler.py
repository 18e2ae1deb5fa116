"""A profiler between Lightning and the user's own that passes actions to a listener."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Protocol

from trainer_hooks.ring.guard import passes_through, quietly
from trainer_hooks.trainers.patching import TransparentProxy

_PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")
_MOST_REGIONS: Final = 1024
"""Names to keep: some are made up during training."""


class ActionHandler(Protocol):
    """Receives one action; must not raise."""

    def begin(self) -> None:
        """The action begins."""

    def end(self, error: BaseException | None) -> None:
        """The action has ended, or raised ``error``."""


Listener = Callable[[str], "ActionHandler | None"]
"""Returns the handler of the action of that name, if any. Must not raise."""


class ListeningProfiler(TransparentProxy):
    """Stands between Lightning and the user's profiler, which does not notice.

    If that is Lightning's own that does nothing, its blocks are skipped, which saves time.
    """

    def __init__(self, inner: Any, listener: Listener) -> None:  # noqa: ANN401
        own = vars(self)  # because ``setattr`` goes to the profiler inside
        handler_of = lru_cache(_MOST_REGIONS)(listener)
        own["_original"], own["_handler_of"] = inner, handler_of
        does_nothing = type(inner) in [
            package.profilers.PassThroughProfiler for package in lightning_packages()
        ]
        make = _regions_alone if does_nothing else _regions_around
        own["profile"] = make(inner, handler_of)

    @passes_through
    def start(self, action_name: str) -> None:
        handler = quietly(self._handler_of, action_name)
        if handler is not None:
            quietly(handler.begin)
        self._original.start(action_name)

    @passes_through
    def stop(self, action_name: str) -> None:
        try:
            self._original.stop(action_name)
        finally:
            handler = quietly(self._handler_of, action_name)
            if handler is not None:
                quietly(handler.end, None)

    @passes_through
    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._original, name, value)


Profile = Callable[[str], AbstractContextManager[Any]]


def _regions_around(inner: Any, handler_of: Listener) -> Profile:  # noqa: ANN401
    inner_profile: Profile = inner.profile

    @passes_through
    def profile(action_name: str) -> AbstractContextManager[Any]:
        handler = quietly(handler_of, action_name)
        region = inner_profile(action_name)
        return region if handler is None else _Around(region, handler)

    return profile


def _regions_alone(_: object, handler_of: Listener) -> Profile:
    """Return the ``profile`` method where only the listener matters.

    A trainer calls it thirty times a step. Its regions have no state, so there is one per name.
    """

    @lru_cache(_MOST_REGIONS)
    @passes_through
    def profile(action_name: str) -> AbstractContextManager[Any]:
        handler = quietly(handler_of, action_name)
        return nullcontext(action_name) if handler is None else _Alone(action_name, handler)

    return profile


class _Around:
    """A profiled block around that of the user's profiler."""

    __slots__ = ("_handler", "_inner")

    @passes_through
    def __init__(self, inner: AbstractContextManager[Any], handler: ActionHandler) -> None:
        self._inner, self._handler = inner, handler

    @passes_through
    def __enter__(self) -> Any:  # noqa: ANN401
        quietly(self._handler.begin)
        return self._inner.__enter__()

    @passes_through
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            return self._inner.__exit__(kind, error, trace)
        finally:
            quietly(self._handler.end, error)


class _Alone:
    """A profiled block for the listener only."""

    __slots__ = ("_begin", "_end", "_name")

    @passes_through
    def __init__(self, name: str, handler: ActionHandler) -> None:
        self._name, self._begin, self._end = name, handler.begin, handler.end

    @passes_through
    def __enter__(self) -> str:
        quietly(self._begin)
        return self._name

    @passes_through
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        quietly(self._end, error)


def without_listener(profiler: Any) -> Any:  # noqa: ANN401
    """Return the user's profiler, even where a fit that raised left ours in place."""
    if type(profiler) is ListeningProfiler:
        return vars(profiler)["_original"]
    return profiler


def lightning_packages() -> list[Any]:
    """Return the imported Lightning packages, else the first one installed."""
    imported = [sys.modules[name] for name in _PACKAGES if name in sys.modules]
    if imported:
        return imported
    for name in _PACKAGES:
        if find_spec(name.partition(".")[0]) is not None:
            return [import_module(name)]
    raise ImportError("PhaseTagger needs Lightning: pip install lightning")

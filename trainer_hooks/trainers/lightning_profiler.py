"""A profiler between Lightning and the user's own: it tells a listener of the same actions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Protocol

from trainer_hooks.trainers.lightning_phases import Action

_PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")


class ActionListener(Protocol):
    """Who is told of actions; nothing here may raise."""

    def action_named(self, name: str) -> Action | None:
        """What the action of that name is; ``None``: not to be told of."""
        ...

    def begin(self, action: Action) -> None:
        """An action begins."""
        ...

    def end(self, action: Action) -> None:
        """An action is over."""
        ...


class ListeningProfiler:
    """Goes between Lightning and the profiler of the user, who sees nothing of it.

    Whatever else is asked of it, its class included, is answered by the
    profiler inside. Where that is Lightning's own that does nothing, it is
    not asked for blocks at all, which saves some of what this costs.
    """

    def __init__(self, inner: Any, listener: ActionListener) -> None:  # noqa: ANN401
        own = vars(self)  # for ``setattr`` goes to the profiler inside
        own["_inner"], own["_listener"] = inner, listener
        actions: dict[str, Action | None] = {}
        own["profile"] = _profile_with(inner, listener, actions)
        own["_actions"] = actions

    def start(self, action_name: str) -> None:
        """An action begins."""
        action = self._action(action_name)
        if action is not None:
            self._listener.begin(action)
        self._inner.start(action_name)

    def stop(self, action_name: str) -> None:
        """An action is over."""
        try:
            self._inner.stop(action_name)
        finally:
            action = self._action(action_name)
            if action is not None:
                self._listener.end(action)

    def _action(self, name: str) -> Action | None:
        actions: dict[str, Action | None] = self._actions
        if name not in actions:
            actions[name] = self._listener.action_named(name)
        return actions[name]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):  # asked of a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)


def _profile_with(
    inner: Any,  # noqa: ANN401
    listener: ActionListener,
    actions: dict[str, Action | None],
) -> Callable[[str], AbstractContextManager[Any]]:
    """The ``profile`` of a listening profiler: a trainer calls it thirty times a step."""
    does_nothing = type(inner) in [
        package.profilers.PassThroughProfiler for package in lightning_packages()
    ]
    inner_profile: Callable[[str], AbstractContextManager[Any]] = (
        _nothing if does_nothing else inner.profile
    )

    def profile(action_name: str) -> AbstractContextManager[Any]:
        try:
            action = actions[action_name]
        except KeyError:
            action = actions[action_name] = listener.action_named(action_name)
        region = inner_profile(action_name)
        return region if action is None else _Region(region, listener, action)

    return profile


class _Region:
    """One profiled block, around the one of the user's profiler."""

    __slots__ = ("_action", "_inner", "_listener")

    def __init__(
        self, inner: AbstractContextManager[Any], listener: ActionListener, action: Action
    ) -> None:
        self._inner, self._listener, self._action = inner, listener, action

    def __enter__(self) -> Any:  # noqa: ANN401
        self._listener.begin(self._action)
        return self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            return self._inner.__exit__(kind, error, trace)
        finally:
            self._listener.end(self._action)


class _Nothing:
    """A block that nobody looks at."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> str:
        return self._name

    def __exit__(self, *_: object) -> None:
        return None


_nothing = lru_cache(maxsize=1024)(_Nothing)


def without_listener(profiler: Any) -> Any:  # noqa: ANN401
    """The profiler of the user, also where a fit that raised left ours in place."""
    if type(profiler) is ListeningProfiler:
        return vars(profiler)["_inner"]
    return profiler


def lightning_packages() -> list[Any]:
    """Those that were imported; if none was, the first that is installed."""
    imported = [sys.modules[name] for name in _PACKAGES if name in sys.modules]
    if imported:
        return imported
    for name in _PACKAGES:
        if find_spec(name.partition(".")[0]) is not None:
            return [import_module(name)]
    raise ImportError("PhaseTagger needs Lightning: pip install lightning")

"""What is put in the place of a trainer's own: methods, and its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from trainer_hooks.ring.guard import passes_through, quietly

Method = Callable[..., Any]


class PatchedMethods:
    """Attributes of instances, classes and modules that are gone around, until ``remove``."""

    def __init__(self) -> None:
        self._placed: list[tuple[Any, str, Any, tuple[Any, ...]]] = []

    def place(self, owner: Any, name: str, around: Callable[[Any], Any]) -> bool:  # noqa: ANN401
        """Let ``owner.name`` be what ``around`` makes of it.

        Returns:
            Whether ``owner`` has that attribute at all.
        """
        present = getattr(owner, name, None)
        if present is None:
            return False
        own = vars(owner)
        before = (own[name],) if name in own else ()
        placed = around(present)
        setattr(owner, name, placed)
        self._placed.append((owner, name, placed, before))
        return True

    def remove(self) -> None:
        """Give every attribute back that nobody else has replaced meanwhile."""
        while self._placed:
            owner, name, placed, before = self._placed.pop()
            if vars(owner).get(name) is not placed:
                continue
            if before:
                setattr(owner, name, before[0])
            else:
                delattr(owner, name)


class Proxy:
    """Whatever it does not do itself is answered by the original.

    A subclass sets ``_original`` before anything else.
    """

    __slots__ = ()

    _original: Any

    @passes_through
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_original":  # asked of a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._original, name)


class TransparentProxy(Proxy):
    """It also seems to be of the original's class."""

    @property  # type: ignore[misc]
    @passes_through
    def __class__(self) -> type:
        return type(self._original)


class FetchListener(Protocol):
    """Who is told of fetches; nothing here may raise."""

    def fetch_begins(self) -> None:
        """The next batch is asked for."""

    def fetch_ends(self, batch: Any, *, is_last: bool) -> None:  # noqa: ANN401
        """It is there; the last before a step, or before it is evaluated."""


class TimedBatches(Proxy):
    """An iterator over the batches of one step, with a clock on each."""

    __slots__ = ("_asked", "_listener", "_original", "_wanted")

    def __init__(self, source: Iterator[Any], listener: FetchListener, wanted: object) -> None:
        self._original, self._listener, self._wanted = source, listener, wanted
        self._asked = 0

    @passes_through
    def __iter__(self) -> TimedBatches:
        return self

    @passes_through
    def __next__(self) -> Any:  # noqa: ANN401
        quietly(self._listener.fetch_begins)
        batch = next(self._original)
        self._asked += 1
        quietly(self._listener.fetch_ends, batch, is_last=self._asked == self._wanted)
        return batch


class TimedLoader(TransparentProxy):
    """The loader of an evaluation: the same, its class included, but for the clock."""

    def __init__(self, loader: Any, listener: FetchListener) -> None:  # noqa: ANN401
        self._original, self._listener = loader, listener

    @passes_through
    def __iter__(self) -> Iterator[Any]:
        quietly(self._listener.fetch_begins)
        for batch in self._original:
            quietly(self._listener.fetch_ends, batch, is_last=True)
            yield batch
            quietly(self._listener.fetch_begins)
        quietly(self._listener.fetch_ends, None, is_last=True)

    @passes_through
    def __len__(self) -> int:
        return len(self._original)

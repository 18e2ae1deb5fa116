"""What replaces a trainer's own methods and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from trainer_hooks.ring.guard import passes_through, quietly

Method = Callable[..., Any]


class PatchedMethods:
    """Patched attributes of instances, classes and modules, until ``remove``."""

    def __init__(self) -> None:
        self._installed: list[tuple[Any, str, Any, tuple[Any, ...]]] = []

    def install(self, owner: Any, name: str, around: Callable[[Any], Any]) -> bool:  # noqa: ANN401
        """Replace ``owner.name`` by what ``around`` makes of it.

        Returns:
            Whether ``owner`` has that attribute.
        """
        present = getattr(owner, name, None)
        if present is None:
            return False
        own = vars(owner)
        before = (own[name],) if name in own else ()
        installed = around(present)
        setattr(owner, name, installed)
        self._installed.append((owner, name, installed, before))
        return True

    def remove(self) -> None:
        """Restore every attribute that nothing else has replaced."""
        while self._installed:
            owner, name, installed, before = self._installed.pop()
            if vars(owner).get(name) is not installed:
                continue
            if before:
                setattr(owner, name, before[0])
            else:
                delattr(owner, name)


class Proxy:
    """Delegates everything else to the original.

    A subclass sets ``_original`` before anything else.
    """

    __slots__ = ()

    _original: Any

    @passes_through
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_original":  # of an unfinished copy
            raise AttributeError(name)
        return getattr(self._original, name)


class TransparentProxy(Proxy):
    """A proxy that also claims the original's class."""

    @property  # type: ignore[misc]
    @passes_through
    def __class__(self) -> type:
        return type(self._original)


class FetchListener(Protocol):
    """Receives fetches; must not raise."""

    def fetch_begins(self) -> None:
        """The next batch is requested."""

    def fetch_ends(self, batch: Any, *, is_last: bool) -> None:  # noqa: ANN401
        """The batch is there; the last one before a step, or one to evaluate."""


class TimedBatches(Proxy):
    """An iterator over the batches of one step that reports each fetch."""

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
    """The loader of an evaluation, with its class, that reports each fetch."""

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

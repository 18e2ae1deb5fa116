"""A Hugging Face ``Trainer``'s batches, with a clock on each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from trainer_hooks.trainers.patching import Proxy, TransparentProxy


class FetchListener(Protocol):
    """Who is told of fetches; nothing here may raise."""

    def fetch_begins(self) -> None:
        """The next batch is asked for."""
        ...

    def fetch_ends(self, batch: Any, *, is_last: bool) -> None:  # noqa: ANN401
        """It is there; the last before a step, or before it is evaluated."""
        ...


class TimedBatches(Proxy):
    """An iterator over the batches of one step."""

    __slots__ = ("_asked", "_listener", "_original", "_wanted")

    def __init__(self, source: Iterator[Any], listener: FetchListener, wanted: object) -> None:
        self._original, self._listener, self._wanted = source, listener, wanted
        self._asked = 0

    def __iter__(self) -> TimedBatches:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        self._listener.fetch_begins()
        batch = next(self._original)
        self._asked += 1
        self._listener.fetch_ends(batch, is_last=self._asked == self._wanted)
        return batch


class TimedLoader(TransparentProxy):
    """The loader of an evaluation: the same, its class included, but for the clock."""

    def __init__(self, loader: Any, listener: FetchListener) -> None:  # noqa: ANN401
        self._original, self._listener = loader, listener

    def __iter__(self) -> Iterator[Any]:
        self._listener.fetch_begins()
        for batch in self._original:
            self._listener.fetch_ends(batch, is_last=True)
            yield batch
            self._listener.fetch_begins()
        self._listener.fetch_ends(None, is_last=True)

    def __len__(self) -> int:
        return len(self._original)

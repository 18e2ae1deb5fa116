"""Data read ahead by a thread: what stands in their place, and what a framework adds to that.

The thread reads at most so many batches, and for no longer than they are wanted. Of itself it
leaves them on the host: Keras on TensorFlow brings them to the device itself.
"""

from __future__ import annotations

import atexit
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any, Final, NamedTuple

Begin = Callable[[Iterator[Any]], Iterator[Any]]

HOST_NAMES: Final = (None, "CPU:0", "/CPU:0")
"""Where such data are in any case; what it is called for data that go elsewhere is fine, too."""


class Host:
    """Batches stay where they are. What a framework does otherwise, it overrides."""

    def around(self) -> AbstractContextManager[object]:
        """What the reading thread is inside of; called in the training's thread."""
        return nullcontext()

    def place(self, batch: Any) -> Any:  # noqa: ANN401
        """Start to bring a batch to the device; called in the reading thread."""
        return batch

    def receive(self, placed: Any) -> Any:  # noqa: ANN401
        """The batch, as it may be used now; called in the training's thread."""
        return placed

    def place_and_wait(self, batch: Any) -> Any:  # noqa: ANN401
        """Bring a batch there; called in a thread that hands it on by means of its own."""
        return self.receive(self.place(batch))


STOP_PATIENCE_S: Final = 5.0
"""How long whoever stops reading waits for the batch that is just being read."""

_LOOK_EVERY_S: Final = 1.0
_END: Final = object()


class Read(NamedTuple):
    """What the thread found: a batch, an error in its place, or the end."""

    batch: Any = _END
    error: BaseException | None = None

    @property
    def is_last(self) -> bool:
        return self.batch is _END


class Reader:
    """Pulls batches out of an iterator, in a thread that starts with the first ``take``.

    Args:
        source: Where batches come from; only the thread asks it.
        depth: How many batches may be ready or being made, beside those taken.
        host: Places each, in the thread, and says what that is inside of.
    """

    def __init__(self, source: Iterator[Any], depth: int, host: Host) -> None:
        self._source: Iterator[Any] | None = source
        self._place, self._around = host.place, host.around()
        self._room = depth
        self._ready: deque[Read] = deque()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def take(self) -> list[Any]:
        """The next batch as it was placed, in a list, which is empty at the end; waits for it.

        Raises:
            BaseException: What reading raised instead of it.
        """
        if self._thread is None:
            self._start()
        read = self._next_read()
        if read.error is not None:
            raise read.error
        return [] if read.is_last else [read.batch]

    def stop(self) -> None:
        """End the thread, and let go of what it read. Waits ``STOP_PATIENCE_S`` at most."""
        with self._changed:
            self._is_stopped = True
            self._ready.clear()
            self._changed.notify_all()
        thread = self._thread
        if thread is None:
            self._source = None
        elif thread is not threading.current_thread():  # it may be collecting garbage: us
            thread.join(STOP_PATIENCE_S)

    def _start(self) -> None:
        run = copy_context().run
        self._thread = threading.Thread(
            target=run, args=(self._run,), name="gpumon-prefetch", daemon=True
        )
        _begun.add(self)
        self._thread.start()

    def _next_read(self) -> Read:
        with self._changed:
            while not self._ready:
                if self._is_stopped:
                    return Read()
                if self._thread is None or not self._thread.is_alive():
                    return Read(error=RuntimeError(_GONE))
                self._changed.wait(_LOOK_EVERY_S)
            self._room += 1
            self._changed.notify_all()
            return self._ready.popleft()

    def _run(self) -> None:
        try:
            with self._around:
                while self._has_room() and self._reads_one():
                    pass
        except BaseException as error:  # noqa: BLE001 (of ``around``: it is the training's to see)
            self._put(Read(error=error))
        self._source = None  # a generator is closed where it ran

    def _has_room(self) -> bool:
        """Wait for room, and take it; False once nobody wants more."""
        with self._changed:
            while self._room < 1 and not self._is_stopped:
                self._changed.wait()
            self._room -= 1
            return not self._is_stopped

    def _reads_one(self) -> bool:
        """Read a batch; whether there may be another. Nothing of it is kept here."""
        assert self._source is not None
        try:
            batch = next(self._source, _END)
            read = Read() if batch is _END else Read(self._place(batch))
        except BaseException as error:  # noqa: BLE001 (raised again where its batch would be)
            read = Read(error=error)
        self._put(read)
        return not read.is_last

    def _put(self, read: Read) -> None:
        with self._changed:
            if not self._is_stopped:
                self._ready.append(read)
            self._changed.notify_all()


_GONE: Final = (
    "the thread that reads ahead is gone: a process that was forked has none, so start "
    "iterating inside it"
)


_begun: Final[weakref.WeakSet[Reader]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Frameworks are taken down at exit: no thread may still be calling one then."""
    for reader in list(_begun):
        reader.stop()


def read_ahead(
    source: Iterator[Any], depth: int, host: Host, begin: Begin = iter
) -> Generator[Any, None, None]:
    """A generator over an iterator whose next batches are read in a thread.

    Nothing is read before the first is asked for. Closing it, or letting go of
    it, ends the thread.

    Args:
        source: Where batches come from.
        depth: How many may be ready or being made, beside the one handed out.
        host: What is done with each.
        begin: Is handed the source in the training's thread when the first batch is asked for,
            and gives what the reading thread goes on with.
    """
    reader = Reader(begin(source), depth, host)
    del source  # the thread closes it, where it is a generator
    try:
        while placed := reader.take():
            # Nothing here holds what is handed out: its memory is the caller's to free.
            yield host.receive(placed.pop())
    finally:
        reader.stop()


class Ahead:
    """Something to iterate over as often as the original; its attributes are the original's."""

    def __init__(self, data: Iterable[Any], depth: int, host: Host) -> None:
        self._data = data
        self._depth = depth
        self._host = host

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_data":  # a copy has none yet
            raise AttributeError(name)
        return getattr(self._data, name)

    def __iter__(self) -> Iterator[Any]:
        """The original is started here, in the caller's thread."""
        return read_ahead(iter(self._data), self._depth, self._host)


class SizedAhead(Ahead):
    """... that has a length."""

    def __len__(self) -> int:
        return len(self._data)  # type: ignore[arg-type]


def ahead(data: Iterable[Any], depth: int, host: Host) -> Any:  # noqa: ANN401
    """Batches read ahead: a generator of an iterator, else something to iterate over."""
    if isinstance(data, (types.GeneratorType, Iterator)):
        return read_ahead(iter(data), depth, host)
    return (SizedAhead if hasattr(data, "__len__") else Ahead)(data, depth, host)


def prefetched(data: Iterable[Any], depth: int, device: object) -> Any:  # noqa: ANN401
    """Read ahead in a thread.

    Raises:
        ValueError: A device other than the host was asked for.
    """
    if device not in HOST_NAMES:
        raise ValueError(
            f"only a tf.data.Dataset can be brought to {device!r} on TensorFlow: make one of "
            "this data, with tf.data.Dataset.from_generator, or leave the device out"
        )
    return ahead(data, depth, Host())

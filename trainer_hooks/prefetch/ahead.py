"""Reads batches ahead in a thread; frameworks add how batches get to the device.

Without a framework batches stay on the host: Keras on TensorFlow copies them to the device itself.
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
"""The names of the host, where these batches stay."""


class Host:
    """Leaves batches on the host. Frameworks override what they do differently."""

    def around(self) -> AbstractContextManager[object]:
        """The context of the reading thread; called in the training thread."""
        return nullcontext()

    def copy_to_device(self, batch: Any) -> Any:  # noqa: ANN401
        """Start to copy a batch to the device; called in the reading thread."""
        return batch

    def receive(self, copied: Any) -> Any:  # noqa: ANN401
        """The batch, ready for use; called in the training thread."""
        return copied

    def copy_and_wait(self, batch: Any) -> Any:  # noqa: ANN401
        """Copy a batch completely; called in a thread of another queue."""
        return self.receive(self.copy_to_device(batch))


STOP_PATIENCE_S: Final = 5.0
"""How long stopping waits for the batch that is being read."""

_CHECK_EVERY_S: Final = 1.0
_NOTHING: Final = object()


class Read(NamedTuple):
    """What the thread read: a batch, an error in its place, or ``_END_OF_DATA``."""

    batch: Any = None
    error: BaseException | None = None


_END_OF_DATA: Final = Read()
"""Read when the source has no more batches, or after ``stop``."""


class Reader:
    """Reads batches from an iterator, in a thread that starts with the first ``next_batch``.

    Args:
        source: The batches; used by the thread only.
        depth: How many batches may be ready or in progress, besides those returned.
        host: Places each batch, in the thread.
    """

    def __init__(self, source: Iterator[Any], depth: int, host: Host) -> None:
        self._source: Iterator[Any] | None = source
        self._copy_to_device, self._around = host.copy_to_device, host.around()
        self._room = depth
        self._ready: deque[Read] = deque()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def next_batch(self) -> list[Any]:
        """The next copied batch in a list, which is empty at the end; waits for it.

        Raises:
            BaseException: The error that reading it raised.
        """
        if self._thread is None:
            self._start()
        read = self._next_read()
        if read.error is not None:
            raise read.error
        return [] if read is _END_OF_DATA else [read.batch]

    def stop(self) -> None:
        """End the thread and drop what it read. Waits ``STOP_PATIENCE_S`` at most."""
        with self._changed:
            self._is_stopped = True
            self._ready.clear()
            self._changed.notify_all()
        thread = self._thread
        if thread is None:
            self._source = None
        elif thread is not threading.current_thread():  # garbage collection may run in it
            thread.join(STOP_PATIENCE_S)

    def _start(self) -> None:
        run = copy_context().run
        self._thread = threading.Thread(
            target=run, args=(self._run,), name="gpumon-prefetch", daemon=True
        )
        _started.add(self)
        self._thread.start()

    def _next_read(self) -> Read:
        with self._changed:
            while not self._ready:
                if self._is_stopped:
                    return _END_OF_DATA
                if self._thread is None or not self._thread.is_alive():
                    return Read(error=RuntimeError(_GONE))
                self._changed.wait(_CHECK_EVERY_S)
            self._room += 1
            self._changed.notify_all()
            return self._ready.popleft()

    def _run(self) -> None:
        try:
            with self._around:
                while self._wait_for_room() and self._read_batch():
                    pass
        except BaseException as error:  # noqa: BLE001 (from ``around``: raised in the training thread)
            self._put(Read(error=error))
        self._source = None  # close a generator in the thread where it ran

    def _wait_for_room(self) -> bool:
        """Wait until another batch may be read, and count it; False after ``stop``."""
        with self._changed:
            while self._room < 1 and not self._is_stopped:
                self._changed.wait()
            self._room -= 1
            return not self._is_stopped

    def _read_batch(self) -> bool:
        """Read a batch without keeping it; return whether there may be another."""
        assert self._source is not None
        try:
            batch = next(self._source, _NOTHING)
            is_end = batch is _NOTHING
            read = _END_OF_DATA if is_end else Read(self._copy_to_device(batch))
        except BaseException as error:  # noqa: BLE001 (raised in place of its batch)
            read = Read(error=error)
        self._put(read)
        return read is not _END_OF_DATA

    def _put(self, read: Read) -> None:
        with self._changed:
            if not self._is_stopped:
                self._ready.append(read)
            self._changed.notify_all()


_GONE: Final = (
    "the thread that reads ahead is gone: a forked process has none, so start iterating in "
    "that process"
)


_started: Final[weakref.WeakSet[Reader]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop all threads before frameworks are shut down at exit."""
    for reader in list(_started):
        reader.stop()


def read_ahead(
    source: Iterator[Any], depth: int, host: Host, begin: Begin = iter
) -> Generator[Any, None, None]:
    """A generator whose next batches are read in a thread.

    Nothing is read before the first batch is requested. Closing or dropping the generator ends the
    thread.

    Args:
        source: The batches.
        depth: How many may be ready or in progress, besides the one in use.
        host: Places each batch.
        begin: Called with the source in the training thread when the first batch is requested;
            returns the iterator for the reading thread.
    """
    reader = Reader(begin(source), depth, host)
    del source  # the thread closes it if it is a generator
    try:
        while copied := reader.next_batch():
            # Keep no reference to the batch: the caller frees its memory.
            yield host.receive(copied.pop())
    finally:
        reader.stop()


class Ahead:
    """An iterable with the attributes of the original; re-iterable if the original is."""

    def __init__(self, data: Iterable[Any], depth: int, host: Host) -> None:
        self._data = data
        self._depth = depth
        self._host = host

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_data":  # not set yet in a copy
            raise AttributeError(name)
        return getattr(self._data, name)

    def __iter__(self) -> Iterator[Any]:
        """Iterate; the original's ``__iter__`` runs in the caller's thread."""
        return read_ahead(iter(self._data), self._depth, self._host)


class SizedAhead(Ahead):
    """``Ahead`` with a length."""

    def __len__(self) -> int:
        return len(self._data)  # type: ignore[arg-type]


def ahead(data: Iterable[Any], depth: int, host: Host) -> Any:  # noqa: ANN401
    """Read ahead: a generator for an iterator, else an iterable."""
    if isinstance(data, (types.GeneratorType, Iterator)):
        return read_ahead(iter(data), depth, host)
    return (SizedAhead if hasattr(data, "__len__") else Ahead)(data, depth, host)


def prefetched(data: Iterable[Any], depth: int, device: object) -> Any:  # noqa: ANN401
    """Read ahead in a thread.

    Raises:
        ValueError: The device is not the host.
    """
    if device not in HOST_NAMES:
        raise ValueError(
            f"only a tf.data.Dataset can be prefetched to {device!r} on TensorFlow: make one of "
            "this data with tf.data.Dataset.from_generator, or leave the device out"
        )
    return ahead(data, depth, Host())

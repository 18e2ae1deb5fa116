"""A thread that reads ahead: at most so many batches, and for no longer than they are wanted."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import copy_context
from typing import Any, Final, NamedTuple

STOP_PATIENCE_S: Final = 5.0
"""How long whoever stops reading waits for the batch that is just being read."""

_LOOK_EVERY_S: Final = 1.0
_END: Final = object()


class NoMoreBatchesError(Exception):
    """The end: a generator may not raise ``StopIteration``, and data may raise anything else."""


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
        place: Makes of a batch what ``take`` gives; called in the thread.
        around: What the thread is inside of while it lives.
    """

    def __init__(
        self,
        source: Iterator[Any],
        depth: int,
        place: Callable[[Any], Any],
        around: AbstractContextManager[object],
    ) -> None:
        self._source: Iterator[Any] | None = source
        self._place = place
        self._around = around
        self._room = depth
        self._ready: deque[Read] = deque()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def take(self) -> Any:  # noqa: ANN401
        """The next batch; waits for it.

        Raises:
            NoMoreBatchesError: There is none.
            BaseException: What reading raised instead of it.
        """
        if self._thread is None:
            self._start()
        read = self._next_read()
        if read.error is not None:
            self.stop()
            raise read.error
        if read.is_last:
            self.stop()
            raise NoMoreBatchesError
        return read.batch

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

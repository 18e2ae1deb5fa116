"""Reads a long log in a second process while the first one settles its rows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import signal
from collections.abc import Iterator
from typing import Final, NoReturn, Protocol

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, RowColumns
from gpumon.sources.logs.log_text import LogText

WORTH_BYTES: Final = 8 << 20
"""Shorter logs gain nothing from a second process."""
_PIPE_BYTES: Final = 1 << 20
"""Rows are settled in bursts: with a smaller pipe, each process waits for the other."""


class RowSource(Protocol):
    """Reads a log block by block."""

    def blocks(self) -> Iterator[list[RowColumns]]:
        """Yield the next rows of each GPU."""
        ...

    def facts(self) -> LogFacts: ...


def is_worth_a_process(text: LogText) -> bool:
    """Return whether a log is long, of known size, and there are two processors."""
    is_long = text.size_bytes is not None and text.size_bytes >= WORTH_BYTES
    has_two = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1  # Linux
    return is_long and has_two


class ReaderProcess:
    """Yields the blocks and facts of a reader that runs in a forked child.

    The pipe between them holds about forty blocks, so memory stays flat. The child ends with the
    reading, or with the ``with`` block.

    Args:
        text: The log; its ``damage`` is set here, too.
        reader: A reader that has read nothing but the first lines.
    """

    def __init__(self, text: LogText, reader: RowSource) -> None:
        self._text = text
        self._known: LogFacts | None = None
        received, sent = os.pipe()
        with contextlib.suppress(OSError):  # a user may have too many pipes for it
            fcntl.fcntl(sent, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._child = os.fork()
        if self._child == 0:
            os.close(received)
            _send_all(sent, text, reader)
        os.close(sent)
        self._pipe = os.fdopen(received, "rb", buffering=1 << 16)

    def __enter__(self) -> ReaderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)

    def blocks(self) -> Iterator[list[RowColumns]]:
        """Yield the reader's blocks.

        Raises:
            UnreadableLogError: As the reader; or its process was killed.
        """
        while True:
            try:
                message = pickle.load(self._pipe)  # from our own child
            except (EOFError, pickle.UnpicklingError) as error:
                raise UnreadableLogError(
                    f"{self._text.name}: the process that reads it was killed"
                ) from error
            if isinstance(message, list):
                yield message
                continue
            failure, self._known, self._text.damage = message
            if failure is not None:
                raise failure
            return

    def facts(self) -> LogFacts:
        assert self._known is not None, "the log is not read yet"
        return self._known


def _send_all(pipe: int, text: LogText, reader: RowSource) -> NoReturn:
    code = 1
    try:
        with os.fdopen(pipe, "wb", buffering=1 << 16) as sent:
            failure = None
            try:
                for block in reader.blocks():
                    pickle.dump(block, sent, pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # noqa: BLE001  (the parent raises it)
                failure = error
            facts = reader.facts() if failure is None else None
            pickle.dump((failure, facts, text.damage), sent, pickle.HIGHEST_PROTOCOL)
        code = 0
    finally:
        os._exit(code)  # also if the parent is gone: nothing must be printed twice

"""A long log, read in a second process while the first one settles its rows."""

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
"""Shorter logs are read before a second process pays."""
_PIPE_BYTES: Final = 1 << 20
"""The rows of all GPUs are settled in bursts: with less, each process waits for the other."""


class RowSource(Protocol):
    """Whatever reads a log block by block."""

    def blocks(self) -> Iterator[list[RowColumns]]:
        """What comes next of each GPU."""
        ...

    def facts(self) -> LogFacts:
        """What is known of the log, once it is read."""
        ...


def is_worth_a_process(text: LogText) -> bool:
    """Whether a log is long, of a known end, and there are two processors."""
    is_long = text.size_bytes is not None and text.size_bytes >= WORTH_BYTES
    has_two = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1  # Linux
    return is_long and has_two


class ReaderProcess:
    """The same blocks and facts as a reader's, which works in a forked child.

    The pipe between both holds some forty blocks, so neither runs far ahead: memory stays flat.
    The child ends with the reading, or with the ``with`` block.

    Args:
        text: What is read: where it breaks off, its ``damage`` is set here, too.
        reader: Its reader, of which nothing but the first lines was read.
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
        """As the reader's.

        Raises:
            UnreadableLogError: As the reader; and where its process was killed.
        """
        while True:
            try:
                said = pickle.load(self._pipe)  # of our own child
            except (EOFError, pickle.UnpicklingError) as error:
                raise UnreadableLogError(
                    f"{self._text.name}: the process that reads it was killed"
                ) from error
            if isinstance(said, list):
                yield said
                continue
            failure, self._known, self._text.damage = said
            if failure is not None:
                raise failure
            return

    def facts(self) -> LogFacts:
        """As the reader's, once ``blocks`` is exhausted."""
        assert self._known is not None, "the log is not read yet"
        return self._known


def _send_all(pipe: int, text: LogText, reader: RowSource) -> NoReturn:
    """Read the log to its end in this child, and never come back."""
    code = 1
    try:
        with os.fdopen(pipe, "wb", buffering=1 << 16) as sent:
            failure = None
            try:
                for block in reader.blocks():
                    pickle.dump(block, sent, pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # noqa: BLE001  (raised by the parent)
                failure = error
            facts = reader.facts() if failure is None else None
            pickle.dump((failure, facts, text.damage), sent, pickle.HIGHEST_PROTOCOL)
        code = 0
    finally:
        os._exit(code)  # also where the parent has gone: nothing is to be said twice

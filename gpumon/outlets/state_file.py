"""``state.json``: how the dstat plugin, ``report`` and ``top`` read the daemon."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from gpumon.core.state import CollectorState, MonitorState
from gpumon.core.state_codec import StateTexts

_LOG = logging.getLogger(__name__)
_MODE = 0o644


class StateFile:
    """Replaces one file atomically in each tick; a full disk never stops the sampling.

    The text is written to a second file in the same folder and renamed over
    the first, so a reader sees the old state or the new one and nothing between.

    Attributes:
        path: Where the state is.
        errors_total: Writes that failed.
    """

    def __init__(self, path: Path, *, address: str | None = None) -> None:
        self.path = path
        self.errors_total = 0
        self._address = address
        self._texts = StateTexts()
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._inode: int | None = None
        self._failing: str | None = None
        self._warned: set[int | None] = set()

    def write(self, state: MonitorState) -> None:
        """Replace the file with this state. Never raises for anything the disk does."""
        body = self._texts.encode(state, pid=os.getpid(), address=self._address)
        try:
            self._inode = _write_whole(self._temporary, body)
            self._temporary.replace(self.path)
        except OSError as error:
            self._count(error)
        else:
            self._failing = None

    def collector_state(self) -> CollectorState:
        """How the last write went, for ``gpumon_collector_success{collector="state_file"}``."""
        return CollectorState(
            name="state_file",
            success=self._failing is None,
            duration_seconds=0.0,
            errors_total=self.errors_total,
            message=self._failing,
        )

    def close(self) -> None:
        """Remove the file, unless another daemon has put its own there. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)
            if self._inode is not None and self.path.stat().st_ino == self._inode:
                self.path.unlink()
        self._inode = None

    def _count(self, error: OSError) -> None:
        self.errors_total += 1
        self._failing = f"cannot write {self.path}: {error.strerror or error}"
        # What was written of it would take up the last of the space.
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)
        if error.errno not in self._warned:
            self._warned.add(error.errno)
            _LOG.warning("%s; sampling goes on, dstat and others see no new state", self._failing)


def _write_whole(path: Path, body: bytes) -> int:
    """Write a file of mode 0644, whatever the umask, and return its inode."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, _MODE)
    try:
        os.fchmod(descriptor, _MODE)
        left = memoryview(body)
        while left:
            left = left[os.write(descriptor, left) :]
        return os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)

"""``state.json``: where dstat, ``report``, ``doctor`` and the training hooks read of the daemon."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from gpumon.core.codecs.state_codec import StateEncoder
from gpumon.core.ring_format.runtime_paths import FILE_FLAGS
from gpumon.core.state import CollectorState, MonitorState
from gpumon.outlets.whole_file import replace_file

_LOG = logging.getLogger(__name__)
_MODE = 0o644


class StateFile:
    """Replaces one file atomically in each tick; a full disk never stops the sampling.

    Attributes:
        path: Where the state is.
        errors_total: Writes that failed, and folders that were lost.
    """

    def __init__(self, path: Path, *, address: str | None = None) -> None:
        self.path = path
        self._is_out = False
        self.errors_total = 0
        self._address = address
        self._encoder = StateEncoder()
        self._newest: tuple[int, int] | None = None  # length and hash of what was written last
        self._failing: str | None = None
        self._warned: set[int | None] = set()

    def write(self, state: MonitorState) -> None:
        """Replace the file with this state. Never raises for anything the disk does."""
        if self._is_out:
            return
        body = self._encoder.encode(state, pid=os.getpid(), address=self._address)
        try:
            replace_file(self.path, body, mode=_MODE)
        except OSError as error:
            self._count(error)
        else:
            self._newest, self._failing = (len(body), hash(body)), None

    def stay_in(self, folder: Path | None, trouble: str | None = None) -> None:
        """Be in this folder from now on.

        Args:
            folder: ``None``: there is none for now, and nothing is written.
            trouble: What happened to the one before, or why there is none:
                told as a failure until the next write that works.
        """
        self._is_out = folder is None
        if folder is not None and folder != self.path.parent:
            self.path = folder / self.path.name
        if trouble is not None:
            self.errors_total += 1
            self._failing = trouble

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
            # Not by its inode: that goes to another file as soon as this one is replaced.
            if self._newest is not None and self._is_there(*self._newest):
                self.path.unlink()
        self._newest = None

    def _is_there(self, length: int, hashed: int) -> bool:
        text = _begins_with(self.path, length + 1)
        return len(text) == length and hash(text) == hashed

    def _count(self, error: OSError) -> None:
        self.errors_total += 1
        self._failing = f"cannot write {self.path}: {error.strerror or error}"
        if error.errno not in self._warned:
            self._warned.add(error.errno)
            _LOG.warning("%s; sampling goes on, dstat and others see no new state", self._failing)


def _begins_with(path: Path, most_bytes: int) -> bytes:
    with os.fdopen(os.open(path, FILE_FLAGS), "rb") as file:
        return file.read(most_bytes)

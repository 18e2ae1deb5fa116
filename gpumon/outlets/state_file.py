"""Writes ``state.json`` for dstat, ``report``, ``doctor`` and the hooks of training scripts."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from gpumon.core.codecs.state_codec import StateEncoder
from gpumon.core.ring_format.runtime_paths import FILE_FLAGS
from gpumon.core.state import CollectorState, MonitorState
from gpumon.outlets.atomic_write import replace_file

_LOG = logging.getLogger(__name__)
_MODE = 0o644


class StateFile:
    """Replaces the file atomically in each tick; a full disk never stops the sampling.

    Attributes:
        errors_total: Failed writes and lost folders.
    """

    def __init__(self, path: Path, *, address: str | None = None) -> None:
        self.path = path
        self._has_no_folder = False
        self.errors_total = 0
        self._address = address
        self._encoder = StateEncoder()
        self._newest: tuple[int, int] | None = None  # length and hash of the last content
        self._failing: str | None = None
        self._warned: set[int | None] = set()

    def write(self, state: MonitorState) -> None:
        """Replace the file. Never raises for a failure of the disk."""
        if self._has_no_folder:
            return
        body = self._encoder.encode(state, pid=os.getpid(), address=self._address)
        try:
            replace_file(self.path, body, mode=_MODE)
        except OSError as error:
            self._count(error)
        else:
            self._newest, self._failing = (len(body), hash(body)), None

    def stay_in(self, folder: Path | None, trouble: str | None = None) -> None:
        """Write to this folder from now on; ``None``: to none, for now.

        A ``trouble`` with the folder is reported as a failure until the next successful write.
        """
        self._has_no_folder = folder is None
        if folder is not None and folder != self.path.parent:
            self.path = folder / self.path.name
        if trouble is not None:
            self.errors_total += 1
            self._failing = trouble

    def collector_state(self) -> CollectorState:
        """The last write, for ``gpumon_collector_success{collector="state_file"}``."""
        return CollectorState(
            name="state_file",
            success=self._failing is None,
            duration_seconds=0.0,
            errors_total=self.errors_total,
            message=self._failing,
        )

    def close(self) -> None:
        """Remove the file, unless another daemon has replaced it. Safe to call twice."""
        with contextlib.suppress(OSError):
            # Compare content: another file may get the inode as soon as this one is replaced.
            if self._newest is not None and self._is_own(*self._newest):
                self.path.unlink()
        self._newest = None

    def _is_own(self, length: int, hashed: int) -> bool:
        with os.fdopen(os.open(self.path, FILE_FLAGS), "rb") as file:
            content = file.read(length + 1)
        return len(content) == length and hash(content) == hashed

    def _count(self, error: OSError) -> None:
        self.errors_total += 1
        self._failing = f"cannot write {self.path}: {error.strerror or error}"
        if error.errno not in self._warned:
            self._warned.add(error.errno)
            _LOG.warning("%s; sampling continues, dstat and others see no new state", self._failing)

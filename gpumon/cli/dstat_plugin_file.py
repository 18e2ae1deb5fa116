"""The plugin file for dstat and dool: the one we ship, and copies of it in other places."""

from __future__ import annotations

import os
import sysconfig
from enum import Enum
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from gpumon import __version__
from gpumon.errors import GpumonError

_STAMP: Final = "# gpumon-dstat-plugin:"
_SHIPPED_NAME: Final = "dstat_gpu.py"
_MAX_BYTES: Final = 1 << 20


class CopyState(Enum):
    """What lies where a copy of the plugin may be."""

    ABSENT = "absent"
    CURRENT = "current"
    OUTDATED = "outdated"
    FOREIGN = "not gpumon's"
    DANGLING = "a link to nothing"

    @property
    def is_ours(self) -> bool:
        """Whether gpumon put it there."""
        return self in (CopyState.CURRENT, CopyState.OUTDATED)

    @property
    def is_loadable(self) -> bool:
        """Whether dstat would try to load it."""
        return self is not CopyState.ABSENT


def shipped_text() -> str:
    """The plugin as this version of gpumon has it.

    Raises:
        GpumonError: The installation lacks it.
    """
    for path in _shipped_paths():
        text = _read(path)
        if text is not None:
            return text
    raise GpumonError(
        f"this installation of gpumon has no {_SHIPPED_NAME}: install it again from its checkout"
    )


def examine(path: Path) -> CopyState:
    """What lies at ``path``; whatever cannot be read is taken for somebody else's."""
    if not os.path.lexists(path):
        return CopyState.ABSENT
    if path.is_symlink() and not path.exists():
        return CopyState.DANGLING
    text = _read(path)
    if text is None or not text.startswith(_STAMP):
        return CopyState.FOREIGN
    is_current = text.split("\n", 1)[1:] == shipped_text().split("\n", 1)[1:]
    return CopyState.CURRENT if is_current else CopyState.OUTDATED


def put_copy(path: Path) -> None:
    """Write the plugin to ``path``, in one step, also over a link; its first line says who did.

    Raises:
        GpumonError: Somebody else's file is there, or the folder cannot be written.
    """
    if examine(path) is CopyState.FOREIGN:
        raise GpumonError(f"{path} is not gpumon's and was left alone: move it away and try again")
    stamp = f"{_STAMP} copied by gpumon {__version__}; remove with `gpumon dstat uninstall`\n"
    text = stamp + shipped_text().split("\n", 1)[1]
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="ascii")
        unfinished.replace(path)
    except OSError as error:
        raise GpumonError(f"cannot write {path}: {error.strerror or error}") from error


def remove_copy(path: Path) -> CopyState:
    """Remove the plugin at ``path`` if it is ours; what was there before.

    Raises:
        GpumonError: It is ours but cannot be removed.
    """
    was = examine(path)
    if was.is_ours:
        try:
            path.unlink()
        except OSError as error:
            raise GpumonError(f"cannot remove {path}: {error.strerror or error}") from error
    return was


def _shipped_paths() -> list[Path]:
    """Where the plugin may be: beside the package in a checkout, else where pip put it."""
    paths = [Path(__file__).resolve().parents[2] / "dstat_plugins" / _SHIPPED_NAME]
    try:
        recorded = distribution("gpumon-starvation").files or []
    except PackageNotFoundError:
        recorded = []
    paths += [Path(str(file.locate())) for file in recorded if file.name == _SHIPPED_NAME]
    # A distribution's package manager may have dropped pip's record.
    paths.append(Path(sysconfig.get_path("data")) / "share" / "dstat" / _SHIPPED_NAME)
    return paths


def _read(path: Path) -> str | None:
    """The text of a small regular file, else ``None``."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None

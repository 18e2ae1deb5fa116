"""What the kernel's own files say of the NVIDIA driver: read only, no driver asked."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_VERSION: Final = re.compile(r"Kernel Module[^\n]*?\s(\d+(?:\.\d+)+)\s")
_RESTRICTED: Final = re.compile(r"^RmProfilingAdminOnly:\s*(\d+)", re.MULTILINE)
_NODE: Final = re.compile(r"nvidia(\d+|ctl)")
_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """What lies below ``/proc`` and ``/dev``.

    Attributes:
        module_version: Of the kernel module that is loaded; ``None`` where none is.
        profiling_needs_root: Whether only root may read performance counters;
            ``None`` where the driver does not say.
        nodes: Device files of the GPUs and of the driver.
        refused: Those that this user may not read and write.
    """

    module_version: str | None
    profiling_needs_root: bool | None
    nodes: tuple[str, ...]
    refused: tuple[str, ...]


def read_driver_files(root: Path = Path("/")) -> DriverFiles:
    """Look at what is there.

    Args:
        root: Where ``proc`` and ``dev`` lie.
    """
    version = _VERSION.search(_text(root / "proc/driver/nvidia/version"))
    restricted = _RESTRICTED.search(_text(root / "proc/driver/nvidia/params"))
    nodes = sorted(path for path in (root / "dev").glob("nvidia*") if _NODE.fullmatch(path.name))
    return DriverFiles(
        module_version=version[1] if version else None,
        profiling_needs_root=None if restricted is None else restricted[1] != "0",
        nodes=tuple(f"/dev/{path.name}" for path in nodes),
        refused=tuple(
            f"/dev/{path.name}" for path in nodes if not os.access(path, os.R_OK | os.W_OK)
        ),
    )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""

"""Facts on this installation from files, without a driver call.

The kernel module of the NVIDIA driver, whether this is a container, and whether another
distribution hides ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.wording import label_text


def other_distributions_called_gpumon() -> tuple[str, ...]:
    """Return where another distribution called ``gpumon`` is installed.

    Its top-level module has the same name as ours, so one of the two hides the other.
    """
    from importlib.metadata import distributions  # takes memory that no daemon needs

    return tuple(
        str(found.locate_file(""))
        for found in distributions()
        if (found.metadata["Name"] or "").lower() == "gpumon"
    )


_MARKS: Final = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}
_GROUPS: Final = re.compile(r"docker|kubepods|containerd|libpod|crio|lxc")


def container_words(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """Return the evidence that this is a container, such as ``"Docker (/.dockerenv)"``."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes ($KUBERNETES_SERVICE_HOST)"
    for mark, name in _MARKS.items():
        if (root / mark[1:]).exists():
            return f"{name} ({mark})"
    if environ.get("container"):  # as Podman, LXC and systemd-nspawn set it
        return f"{label_text(environ['container'])} ($container)"
    found = _GROUPS.search(_text(root / "proc/1/cgroup"))
    return f"{found[0]} (/proc/1/cgroup)" if found else None


_VERSION: Final = re.compile(r"Kernel Module[^\n]*?\s(\d+(?:\.\d+)+)\s")
_RESTRICTED: Final = re.compile(r"^RmProfilingAdminOnly:\s*(\d+)", re.MULTILINE)
_NODE: Final = re.compile(r"nvidia(\d+|ctl)")
_MAX_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """The driver's files in ``/proc`` and ``/dev``.

    Attributes:
        module_version: Of the loaded kernel module; ``None``: none is loaded.
        profiling_needs_root: Whether only root may read performance counters; ``None``: unknown.
        nodes: Device files of the GPUs and of the driver.
        refused: Those that this user may not read and write.
    """

    module_version: str | None
    profiling_needs_root: bool | None
    nodes: tuple[str, ...]
    refused: tuple[str, ...]


def read_driver_files(root: Path = Path("/")) -> DriverFiles:
    """Read the driver's files below ``root``."""
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
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""

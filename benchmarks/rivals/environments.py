"""Where the interpreters are: one for each framework, and one for the rivals."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NVITOP, TRACEML, GPUPROF = "nvitop==1.6.0", "traceml-ai==0.5.0", "gpuprof==0.7.1"


class NotInstalledError(Exception):
    """What a benchmark needs is not on this machine; the sentence says how to get it."""


def framework_python(framework: str) -> Path:
    """The interpreter that has ``jax``, ``tensorflow`` or ``torch``.

    Raises:
        NotInstalledError: Its environment was not made.
    """
    python = ROOT / f".venv-{framework}" / "bin" / "python"
    if not python.exists():
        raise NotInstalledError(
            f"there is no .venv-{framework}: `make .venv-{framework}/.dev` makes it"
        )
    return python


def rivals_python() -> Path:
    """The interpreter that has torch and the rivals; ``$GPUMON_RIVALS`` names another environment.

    Raises:
        NotInstalledError: The environment was not made.
    """
    folder = Path(os.environ.get("GPUMON_RIVALS") or ROOT / ".venv-rivals")
    python = folder / "bin" / "python"
    if not python.exists():
        raise NotInstalledError("there is no .venv-rivals: `make bench-hooks` makes it")
    return python


@cache
def has_rival(pinned: str) -> bool:
    """Whether the rivals' environment has exactly this version, such as ``gpuprof==0.7.1``."""
    try:
        return _is_in(_site_packages(rivals_python()), pinned)
    except NotInstalledError:
        return False


def nvitop_folder() -> Path:
    """A folder with nvitop and what it needs, for TensorFlow's interpreter to find it in.

    Raises:
        NotInstalledError: It was not made, or holds another version.
    """
    try:
        folder = rivals_python().parent.parent / "nvitop"
    except NotInstalledError as missing:
        raise NotInstalledError(f"{NVITOP}'s callback: {missing}") from None
    if not _is_in(folder, NVITOP):
        raise NotInstalledError(f"{NVITOP} is not in {folder}: `make bench-hooks` puts it there")
    return folder


def _is_in(folder: Path, pinned: str) -> bool:
    name, _, version = pinned.partition("==")
    return (folder / f"{name.replace('-', '_')}-{version}.dist-info").is_dir()


def _site_packages(python: Path) -> Path:
    return next((python.parent.parent / "lib").glob("python3*/site-packages"))

"""Builds the fake libnvidia-ml.so.1, and says how a process is started on it.

One command does the same: ``python -m tests.fakenvml.build DIRECTORY``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SONAME = "libnvidia-ml.so.1"
_HERE = Path(__file__).parent
_FLAGS = (
    "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter",
    "-fPIC", "-fvisibility=hidden", "-shared",
)  # fmt: skip


class NoCompilerError(Exception):
    """There is no C compiler on this machine."""


def build_fake(directory: Path, *, without: tuple[str, ...] = (), soname: str = SONAME) -> Path:
    """Compile the fake into ``directory``, unless it is there and newer than its sources.

    Args:
        directory: Where it goes; made if missing. Put it into
            ``LD_LIBRARY_PATH`` (``fake_env`` does).
        without: Functions that the library does not export: an old driver
            (``generations.py``).
        soname: The name inside the file, by which a process finds it again
            once it is loaded; the file itself is always libnvidia-ml.so.1.

    Returns:
        The path of the library.

    Raises:
        NoCompilerError: No ``cc`` or ``gcc`` is found.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("the fake NVML needs a C compiler: apt-get install gcc")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / SONAME
    sources = sorted(_HERE.glob("*.[ch]"))
    if not without and _is_newer(library, sources):
        return library

    unfinished = directory / f".{SONAME}.{os.getpid()}"
    flags = [*_FLAGS, f"-Wl,-soname,{soname}", *_hiding(directory, without)]
    units = [str(source) for source in sources if source.suffix == ".c"]
    subprocess.run([compiler, *flags, *units, "-o", str(unfinished)], check=True)
    unfinished.replace(library)  # two test processes may build at once
    return library


def fake_env(ctl_path: Path, lib_dir: Path) -> dict[str, str]:
    """The environment of a process that is to see the fake GPUs of ``ctl_path``."""
    older = os.environ.get("LD_LIBRARY_PATH")
    return {
        **os.environ,
        "FAKENVML_CTL": str(ctl_path),
        "LD_LIBRARY_PATH": f"{lib_dir}:{older}" if older else str(lib_dir),
    }


def _is_newer(library: Path, sources: list[Path]) -> bool:
    if not library.exists():
        return False
    return library.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def _hiding(directory: Path, names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    script = directory / "exports.map"
    hidden = " ".join(f"{name};" for name in names)
    script.write_text(f"{{ global: nvml*; local: {hidden} *; }};\n", encoding="ascii")
    return [f"-Wl,--version-script={script}"]


if __name__ == "__main__":
    print(build_fake(Path(sys.argv[1])))

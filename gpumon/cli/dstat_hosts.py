"""Finds dstat, dool and pcp-dstat on this machine, and the plugin's copies for them.

The plugin is one file; the name of a copy decides which of two options it is. Commands are
identified by reading files only.
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from gpumon import __version__
from gpumon.errors import GpumonError
from gpumon.outlets.atomic_write import replace_file

_STAMP: Final = "# gpumon-dstat-plugin:"
_SHIPPED_NAME: Final = "dstat_gpu.py"
OPTIONS: Final = ("--gpu", "--gpu-stall")
_MAX_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 16 * 1024
_FIRST_WITHOUT_IMP: Final = (3, 12)
"""Python without the module ``imp``, with which dstat loads plugins."""


class Flavour(Enum):
    """What a command really is."""

    DSTAT = "dstat"
    DOOL = "dool"
    PCP_DSTAT = "pcp-dstat"
    UNKNOWN = "unknown"


class CopyState(Enum):
    """State of the path of a copy."""

    ABSENT = "absent"
    CURRENT = "current"
    OUTDATED = "outdated"
    FOREIGN = "not gpumon's"
    DANGLING = "a broken link"

    @property
    def is_ours(self) -> bool:
        """Whether gpumon wrote it."""
        return self in (CopyState.CURRENT, CopyState.OUTDATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCopy:
    """A path at which a host looks for an option.

    Attributes:
        option: Such as ``--gpu``.
        is_loaded: Whether the host loads it: the first file that exists.
    """

    option: str
    path: Path
    state: CopyState
    is_loaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DstatHost:
    """A command that may load the plugin.

    Attributes:
        python: Interpreter in its first line.
        python_version: Of that interpreter, by its name, such as ``(3, 11)``.
        plugin_folders: Where it looks for plugins, in order.
    """

    command: Path
    target: Path
    flavour: Flavour
    python: Path | None
    python_version: tuple[int, int] | None
    plugin_folders: tuple[Path, ...]

    @property
    def obstacle(self) -> str | None:
        """Why it cannot load the plugin, and what to use instead; ``None`` if it can."""
        instead = "`pip install dool`, then `dool -cdn --gpu 1`"
        if self.flavour is Flavour.PCP_DSTAT:
            return f"it does not load Python plugins; {instead}"
        if self.flavour is Flavour.UNKNOWN:
            return f"gpumon does not support it; {instead}"
        too_new = self.python_version is not None and self.python_version >= _FIRST_WITHOUT_IMP
        if self.flavour is Flavour.DSTAT and too_new:
            return f"dstat cannot load any plugin under Python 3.12 or newer; {instead}"
        return None

    def copies(self) -> tuple[PluginCopy, ...]:
        """The paths at which it looks, by option, in its order."""
        return tuple(copy for option in OPTIONS for copy in self._copies_of(option))

    def _copies_of(self, option: str) -> list[PluginCopy]:
        paths = [folder / _file_name(self.flavour, option) for folder in self.plugin_folders]
        states = {path: examine(path) for path in paths}
        first = next((path for path in paths if states[path] is not CopyState.ABSENT), None)
        return [
            PluginCopy(option=option, path=path, state=states[path], is_loaded=path == first)
            for path in paths
        ]


def loaded_copies(copies: Iterable[PluginCopy]) -> dict[str, PluginCopy]:
    """The copy that a host loads, by option."""
    return {copy.option: copy for copy in copies if copy.is_loaded}


def home_copies(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The copies in the user's home folder, where dstat and dool look first."""
    return tuple(
        _in_home(flavour, environ) / _file_name(flavour, option)
        for flavour in (Flavour.DSTAT, Flavour.DOOL)
        for option in OPTIONS
    )


def _in_home(flavour: Flavour, environ: Mapping[str, str]) -> Path:
    return _home(environ) / f".{flavour.value}"


def _file_name(flavour: Flavour, option: str) -> str:
    """The file name of an option's plugin, such as ``dstat_gpu_stall.py``."""
    return f"{flavour.value}_{option.removeprefix('--').replace('-', '_')}.py"


def find_hosts(environ: Mapping[str, str]) -> tuple[DstatHost, ...]:
    """The commands ``dstat``, ``dool`` and ``pcp-dstat`` on PATH, without duplicates."""
    found: dict[Path, DstatHost] = {}
    for name in ("dstat", "dool", "pcp-dstat"):
        command = shutil.which(name, path=environ.get("PATH", ""))
        if command is not None:
            host = identify(Path(command), environ)
            found.setdefault(host.target, host)
    return tuple(found.values())


def identify(command: Path, environ: Mapping[str, str]) -> DstatHost:
    """Identify a command by its name, its links and its first lines."""
    target = command.resolve()
    head = _head(target)
    flavour = _flavour(command, target, head)
    python = _interpreter(head, environ)
    return DstatHost(
        command=command,
        target=target,
        flavour=flavour,
        python=python,
        python_version=_version(python),
        plugin_folders=_plugin_folders(flavour, command, target, environ),
    )


def _flavour(command: Path, target: Path, head: str) -> Flavour:
    if "pcp" in target.name or "pmpython" in head or "import pmapi" in head:
        return Flavour.PCP_DSTAT
    # A console script by pip only has the name of what it starts.
    if re.search(r"^(from|import) dool\b|^class dool\b", head, re.MULTILINE):
        return Flavour.DOOL
    if "pluginpath = [" in head and "dstat" in head:
        return Flavour.DSTAT
    return Flavour.DOOL if "DOOL_PLUGIN_PATH" in head else Flavour.UNKNOWN


def _plugin_folders(
    flavour: Flavour, command: Path, target: Path, environ: Mapping[str, str]
) -> tuple[Path, ...]:
    if flavour is Flavour.DSTAT:
        own = [command.parent / "plugins"]
    elif flavour is Flavour.DOOL:
        data = Path(environ.get("XDG_DATA_HOME") or _home(environ) / ".local" / "share")
        packages = target.parent.parent.glob("lib/python3*/site-packages/dool/plugins")
        own = [data / "dool" / "plugins", *packages]
    else:
        return ()
    shared = [Path(share, flavour.value) for share in ("/usr/share", "/usr/local/share")]
    return (_in_home(flavour, environ), *own, *shared)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _interpreter(head: str, environ: Mapping[str, str]) -> Path | None:
    """The interpreter in the first line, ``#!...``; a bare name is looked up on PATH."""
    words = head.split("\n", 1)[0].removeprefix("#!").split() if head.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        found = shutil.which(words[-1], path=environ.get("PATH", ""))
        return Path(found) if found else None
    return Path(words[0]) if words else None


def _version(python: Path | None) -> tuple[int, int] | None:
    """The version in the interpreter's real name, ``python3.11``."""
    named = re.fullmatch(r"python(\d+)\.(\d+)", python.resolve().name) if python else None
    return (int(named[1]), int(named[2])) if named else None


# -- copies of the plugin ---------------------------------------------------------


def shipped_text() -> str:
    """This version's plugin; ``GpumonError`` if the installation lacks it."""
    for path in _shipped_paths():
        text = _read(path)
        if text is not None:
            return text
    raise GpumonError(
        f"this installation of gpumon lacks {_SHIPPED_NAME}: reinstall it from its checkout"
    )


def examine(path: Path) -> CopyState:
    """The state of a path; an unreadable file counts as foreign."""
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
    """Write the plugin atomically, with a stamp in its first line; a link is replaced.

    Raises:
        GpumonError: A foreign file is there, or the folder cannot be written.
    """
    if examine(path) is CopyState.FOREIGN:
        raise GpumonError(f"{path} is not gpumon's and was not changed: move it away and try again")
    stamp = f"{_STAMP} copied by gpumon {__version__}; remove with `gpumon dstat uninstall`\n"
    text = stamp + shipped_text().split("\n", 1)[1]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode("ascii"), mode=None)
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
    """Where the plugin may be: next to the package in a checkout, or where pip installed it."""
    paths = [Path(__file__).resolve().parents[2] / "dstat_plugins" / _SHIPPED_NAME]
    try:
        recorded = distribution("gpumon-starvation").files or []
    except PackageNotFoundError:
        recorded = []
    paths += [Path(str(file.locate())) for file in recorded if file.name == _SHIPPED_NAME]
    # A Linux distribution's package may lack pip's record.
    paths.append(Path(sysconfig.get_path("data")) / "share" / "dstat" / _SHIPPED_NAME)
    return paths


def _read(path: Path) -> str | None:
    """The text of a small regular file; ``None`` otherwise."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None

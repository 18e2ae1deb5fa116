"""The real dstat and dool, if installed."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.needs import missing


@dataclass(frozen=True)
class RealHost:
    """A tool that loads the plugin: how it starts, its interpreter, and the file of its classes."""

    name: str
    words: tuple[str, ...]
    python: str
    source: Path


def real_host(name: str) -> RealHost:
    """The tool; without it the test is skipped, or fails in CI."""
    host = _dool() if name == "dool" else _dstat()
    if host is None:
        missing(f"no {name} here: `apt install dstat` (Debian 12), `pip install dool`")
    assert host is not None
    return host


def _dstat() -> RealHost | None:
    """The system's dstat, under the system's Python; pcp-dstat has the same name."""
    path = Path("/usr/bin/dstat")
    if not path.is_file() or b"pluginpath = [" not in path.read_bytes():
        return None
    return RealHost("dstat", (str(path),), "/usr/bin/python3", path)


def _dool() -> RealHost | None:
    spec = importlib.util.find_spec("dool")
    if spec is None or spec.origin is None:
        return None
    source = Path(spec.origin).with_name("__main__.py")
    return RealHost("dool", (sys.executable, "-m", "dool"), sys.executable, source)

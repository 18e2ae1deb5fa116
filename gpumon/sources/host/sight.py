"""What this machine lets whoever asks see of a training, before there is one to look at."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.host.kept_files import KeptFiles

_TRIES: Final = 20
_BETWEEN_S: Final = 0.002


class HostSight(NamedTuple):
    """Which of the kernel's words on a process there are here.

    Attributes:
        counts_cores: What a thread had of a core, and how long it waited for one (``schedstat``).
        names_sleep: In which of its functions a thread sleeps (``wchan``).
        names_children: Which processes a process has started (``children``).
        counts_memory_stalls: How long somebody waited for memory (PSI).
        shows_others: That processes of other users are there at all.
        opens_others: What these read, and where they sleep; by process 1, which is root's.
    """

    counts_cores: bool = True
    names_sleep: bool = True
    names_children: bool = True
    counts_memory_stalls: bool = True
    shows_others: bool = True
    opens_others: bool = True


def look_at_host(proc: str = "/proc") -> HostSight:
    """Ask the kernel for each of them once, of this process and of process 1."""
    root = Path(proc)
    return HostSight(
        counts_cores=any(n != "0" for n in _text(root / "self/schedstat").split()),
        names_sleep=_names_sleep(root),
        names_children=any(root.glob("self/task/*/children")),
        counts_memory_stalls=bool(_text(root / "pressure/memory")),
        shows_others=bool(_text(root / "1/stat")),
        opens_others=bool(_text(root / "1/io")),
    )


def _names_sleep(root: Path) -> bool:
    """Whether a thread of this process that sleeps is said to; it falls asleep in a moment."""
    with _a_thread_that_sleeps():
        for _ in range(_TRIES):
            if any(_text(path) not in ("", "0") for path in root.glob("self/task/*/wchan")):
                return True
            time.sleep(_BETWEEN_S)
    return False


@contextmanager
def _a_thread_that_sleeps() -> Iterator[None]:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _text(path: Path) -> str:
    """What a file says; empty where it is not there, or not to be read."""
    try:
        return KeptFiles.read_once(str(path)).decode("ascii", "replace").strip()
    except OSError:
        return ""

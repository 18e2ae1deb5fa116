"""Find out which kernel evidence on runs this user can read here."""

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


class HostVisibility(NamedTuple):
    """Which kernel evidence is available.

    Attributes:
        counts_cores: A thread's time on cores and waiting for one (``schedstat``).
        names_sleep: The kernel function in which a thread sleeps (``wchan``).
        names_children: A process's children (``children``).
        counts_memory_stalls: Stalls for memory (PSI).
        shows_others: Whether processes of other users are visible at all.
        opens_others: Whether their ``io`` can be read; tested on process 1, which is root's.
    """

    counts_cores: bool = True
    names_sleep: bool = True
    names_children: bool = True
    counts_memory_stalls: bool = True
    shows_others: bool = True
    opens_others: bool = True


def read_host_visibility(proc: str = "/proc") -> HostVisibility:
    """Read each kind of evidence once, of this process and of process 1."""
    root = Path(proc)
    return HostVisibility(
        counts_cores=any(n != "0" for n in _text(root / "self/schedstat").split()),
        names_sleep=_names_sleep(root),
        names_children=any(root.glob("self/task/*/children")),
        counts_memory_stalls=bool(_text(root / "pressure/memory")),
        shows_others=bool(_text(root / "1/stat")),
        opens_others=bool(_text(root / "1/io")),
    )


def _names_sleep(root: Path) -> bool:
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
    try:
        return KeptFiles.read_once(str(path)).decode("ascii", "replace").strip()
    except OSError:
        return ""

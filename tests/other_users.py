"""Other users on the same machine, and a ``/proc`` that hides their processes."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER_UID = 65_534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def become(uid: int = OTHER_UID, imports: str = "trainer_hooks") -> str:
    """The first line of a program that continues as another user.

    Args:
        uid: Also of the group.
        imports: What it loads before, because the user may not enter the checkout, or the folder
            of Python.
    """
    leave = f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})"
    codecs = "encodings.ascii, encodings.idna"  # for names and sockets
    codecs += ", locale, shutil"  # for a parser of arguments
    return f"import os, {codecs}, {imports}; {leave}\n"


@contextmanager
def shared_runtime_folder() -> Iterator[Path]:
    """A runtime folder as root's daemon makes it: all users may put a ring there."""
    with tempfile.TemporaryDirectory(prefix="gpumon-test-") as name:
        runtime = Path(name)  # not below the test's own folder, which others may not enter
        runtime.chmod(0o755)
        (runtime / "phases").mkdir()
        (runtime / "phases").chmod(0o1777)
        yield runtime


READER_GROUP = 54_321
"""The group that sees all processes."""
_FIRST_KERNEL = 5, 8
"""Before Linux 5.8 all mounts of ``/proc`` share one ``hidepid``, also the host's."""


def _can_hide() -> bool:
    release = platform.release().split(".")
    if not all(part.isdecimal() for part in release[:2]):
        return False
    if tuple(map(int, release[:2])) < _FIRST_KERNEL or os.geteuid() != 0:
        return False
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return False
    done = subprocess.run(hiding(["true"]), capture_output=True, check=False)
    return done.returncode == 0


def hiding(command: Sequence[str], *, hidepid: int = 2) -> list[str]:
    """Wrap a command: run as root, without the right to inspect other users' processes."""
    script = f'mount -t proc -o hidepid={hidepid},gid={READER_GROUP} proc /proc && exec "$@"'
    without_right = ["setpriv", "--bounding-set=-sys_ptrace", "--clear-groups", "--"]
    return ["unshare", "--mount", "sh", "-c", script, "sh", *without_right, *command]


needs_hidepid = pytest.mark.skipif(
    not _can_hide(), reason="only the superuser can mount /proc with hidepid, on Linux 5.8 or newer"
)

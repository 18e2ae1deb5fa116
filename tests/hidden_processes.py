"""``/proc`` mounted with ``hidepid``, for one command of a test."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence

import pytest

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

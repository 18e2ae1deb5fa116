"""Other users on the same machine: processes of root that become another user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
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

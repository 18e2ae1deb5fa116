"""Someone else on the same machine: processes that give the superuser's rights away.

Whoever is not the superuser cannot become someone else: those tests are skipped there, and say so.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER_UID = 65_534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become another user")


def become(uid: int = OTHER_UID, imports: str = "trainer_hooks") -> str:
    """The first line of a program that goes on as another user.

    Args:
        uid: Who; his group has the same number.
        imports: What it must have loaded before, since he may not enter the checkout, nor where
            Python lies in someone's home.
    """
    leave = f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})"
    codecs = "encodings.ascii, encodings.idna"  # a name and a socket are looked for by them
    return f"import os, {codecs}, {imports}; {leave}\n"


@contextmanager
def shared_runtime_folder() -> Iterator[Path]:
    """A runtime folder such as the superuser's daemon makes: everybody may put a ring there."""
    with tempfile.TemporaryDirectory(prefix="gpumon-test-") as name:
        runtime = Path(name)  # not below the test's own folder, which others may not enter
        runtime.chmod(0o755)
        (runtime / "phases").mkdir()
        (runtime / "phases").chmod(0o1777)
        yield runtime

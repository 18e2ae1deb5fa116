"""A plain ``MirroredStrategy`` in the same process as the ratio model, and ``clear_session``."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.multi_gpu


@pytest.fixture(scope="module")
def said() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.multi_gpu.beside_mirrored"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()


def after(words: str, said: list[str]) -> str:
    (line,) = [line for line in said if line.startswith(words)]
    return line.removeprefix(words)


@pytest.mark.parametrize("which", ["mirrored", "before", "beside", "cleared"])
def test_neither_is_in_the_others_way_with_clear_session_or_without(
    said: list[str], which: str
) -> None:
    assert float(after(f"{which} differs by", said)) <= 1e-6


@pytest.mark.parametrize("kind", ["arrays", "tf.data"])
@pytest.mark.parametrize("act", ["evaluate", "validation"])
def test_copies_of_samples_are_not_evaluated_on_it(said: list[str], act: str, kind: str) -> None:
    assert "evaluate would count" in after(f"{act} of {kind}:", said)

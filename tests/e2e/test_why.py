"""What `gpumon why` finds in real training scripts without any tag."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.sources.stacks.py_spy import find_py_spy
from tests.needs import missing
from tests.processes import ending
from tests.programs import ROOT, gpumon
from tests.waiting import wait_until

GENERATOR = """\
import sys, time
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from trainer_hooks.examples.busy_spans import BusySpans


def read_shard():
    while True:
        time.sleep(1.2)
        yield 1


def train(gpu):
    for batch in read_shard():
        for _ in range(3):
            gpu.sleep(0.1)


with BusySpans(Path(sys.argv[1])) as gpu:
    train(gpu)
"""


@pytest.fixture(autouse=True)
def _has_py_spy() -> None:
    if find_py_spy() is None:
        missing("py-spy is not installed (pip install -e '.[stacks]')")


@contextmanager
def training(folder: Path, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A training script that has worked already; its spans are in ``busy.jsonl``."""
    (folder / "train.py").write_text(script)
    spans = folder / "busy.jsonl"
    words = [sys.executable, str(folder / "train.py"), str(spans), str(ROOT)]
    with ending(subprocess.Popen(words)) as process:
        wait_until(lambda: spans.exists() and spans.stat().st_size > 0)
        yield process


class TestAPlainGenerator:
    def test_is_named_with_the_line_that_calls_it(self, tmp_path: Path) -> None:
        with training(tmp_path, GENERATOR) as process:
            source = f"follow:{tmp_path / 'busy.jsonl'}"
            shown = gpumon("why", str(process.pid), "--source", source, "--for", "12")

        assert shown.returncode == 0, shown.stderr
        line = GENERATOR.splitlines().index("    for batch in read_shard():") + 1
        assert "read_shard (train.py:10)" in shown.stdout
        assert f"called from train.py:{line}" in " ".join(shown.stdout.split())

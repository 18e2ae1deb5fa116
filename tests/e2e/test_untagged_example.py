"""`gpumon why` on the example that has no tags: it names the line that makes batches late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.sources.stacks.py_spy import find_py_spy
from tests.needs import missing
from tests.processes import ending
from tests.programs import ROOT, gpumon
from tests.waiting import wait_until

pytestmark = [pytest.mark.keras_torch, pytest.mark.slow]

SCRIPT = ROOT / "examples" / "imagenet_untagged.py"
IN_THE_TRANSFORM = ("__getitem__", "blur_then_crop", "blur")


def test_names_the_transform(tmp_path: Path) -> None:
    if find_py_spy() is None:
        missing("py-spy is not installed (pip install -e '.[stacks]')")
    board = tmp_path / "board.jsonl"
    words = [str(SCRIPT), "--board", str(board), "--images", "64", "--epochs", "100"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}  # its images stay when it is killed
    training = subprocess.Popen([sys.executable, *words], env=environ)
    with ending(training):
        wait_until(lambda: board.exists() and board.stat().st_size > 0, 60)
        source = f"follow:{board}"
        shown = gpumon("why", "--json", str(training.pid), "--source", source, "--for", "12")

    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    named = document["function"]
    assert document["causes"][0]["cause"] == "input_wait", document
    assert Path(named["path"]).name == SCRIPT.name
    assert named["function"].rpartition(".")[2] in IN_THE_TRANSFORM

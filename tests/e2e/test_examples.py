"""The articles' examples run as they are, on logical devices where there is no GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes import ending

pytestmark = [pytest.mark.multi_gpu, pytest.mark.alone]

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each example prints; they run side by side, in an empty folder."""
    pytest.importorskip("tensorflow")
    folder = tmp_path_factory.mktemp("examples")
    environ = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "GPUMON_STAND_IN_GPUS": "3",
        "GPUMON_RUNTIME_DIR": str(folder),
        "CUDA_VISIBLE_DEVICES": "",
    }
    told = {}
    with ExitStack() as stack:
        running = {}
        for name in SCRIPTS:
            started = subprocess.Popen(
                [sys.executable, str(FOLDER / name)],
                cwd=folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            running[name] = stack.enter_context(ending(started))
        for name, process in running.items():
            out, err = process.communicate(timeout=240)
            assert process.returncode == 0, f"{name}: {err[-3000:]}"
            told[name] = out
    return told


def test_there_is_one_for_each_article() -> None:
    assert SCRIPTS == [
        "five_tips.py",
        "maxing_unequal_gpus.py",
        "prefetched_batches.py",
        "slices_over_three_gpus.py",
    ]


class TestTheFirstArticles:
    def test_ends_with_a_saved_model_that_predicts_as_the_one_that_was_trained(
        self, printed: dict[str, str]
    ) -> None:
        assert "Each batch is split over CPU:1, CPU:2, CPU:3" in printed["five_tips.py"]
        assert "it predicts the same: True" in printed["five_tips.py"]


class TestTheSecondArticles:
    def test_gives_each_of_three_gpus_a_third(self, printed: dict[str, str]) -> None:
        given = re.findall(r"is given (\d+) of a batch", printed["slices_over_three_gpus.py"])

        assert given == ["34", "33", "33"]


class TestTheThirdArticles:
    def test_takes_less_time_a_step_with_batches_made_ahead(self, printed: dict[str, str]) -> None:
        """20 ms for a batch and 20 for a step: one after the other, or side by side."""
        demand, ahead = re.findall(r"([\d.]+) ms", printed["prefetched_batches.py"])

        assert float(ahead) < 0.8 * float(demand)


class TestTheFourthArticles:
    def test_trains_in_ratios_by_the_name_its_script_imports(self, printed: dict[str, str]) -> None:
        assert "2/2" in printed["maxing_unequal_gpus.py"]
        assert "4 steps in" in printed["maxing_unequal_gpus.py"]

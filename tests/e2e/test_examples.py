"""The articles' examples run as they are, on logical devices where there is no GPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.programs import ran

pytestmark = pytest.mark.multi_gpu

FOLDER = Path(__file__).resolve().parents[2] / "examples"


def printed(name: str, folder: Path) -> str:
    """What an example prints, in an empty folder."""
    pytest.importorskip("tensorflow")
    environ = {
        "KERAS_BACKEND": "tensorflow",
        "GPUMON_STAND_IN_GPUS": "3",
        "GPUMON_RUNTIME_DIR": str(folder),
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = ran(sys.executable, FOLDER / name, cwd=folder, environ=environ, timeout_s=240)
    assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"
    return done.stdout


class TestTheFirstArticles:
    def test_ends_with_a_saved_model_that_predicts_as_the_one_that_was_trained(
        self, tmp_path: Path
    ) -> None:
        reported = printed("five_tips.py", tmp_path)

        assert " GPU:0, GPU:1, GPU:2\n" in reported
        assert reported.endswith(": True\n")


class TestTheSecondArticles:
    def test_gives_each_of_three_gpus_a_third(self, tmp_path: Path) -> None:
        reported = printed("slices_over_three_gpus.py", tmp_path)
        given = re.findall(r"gets (\d+) of a batch", reported)

        assert given == ["34", "33", "33"]


class TestTheThirdArticles:
    @pytest.mark.alone
    @pytest.mark.measured
    def test_takes_less_time_a_step_with_batches_made_ahead(self, tmp_path: Path) -> None:
        """20 ms for a batch and 20 for a step: one after the other, or side by side."""
        demand, ahead = re.findall(r"([\d.]+) ms", printed("prefetched_batches.py", tmp_path))

        assert float(ahead) < 0.8 * float(demand)


class TestTheFourthArticles:
    def test_trains_in_ratios_by_the_name_its_script_imports(self, tmp_path: Path) -> None:
        reported = printed("maxing_unequal_gpus.py", tmp_path)

        assert "2/2" in reported
        assert "4 steps in" in reported

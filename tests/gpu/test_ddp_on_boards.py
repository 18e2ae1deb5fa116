"""The ratios of ranks on real GPUs, one each, over NCCL; the GPUs may differ."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.loops.ratio_courses import EXACT, SYNCED_NORM, courses_of

ROOT = Path(__file__).resolve().parents[2]
WORLD = 2
PLAIN, NORMALISED = 1e-6, 1e-5
"""Tolerances of weights; a GPU sums the statistics of batch norm in another order."""

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Any]]:
    """The weights of one process on the first GPU, and the results of two ranks."""
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < WORLD:
        pytest.skip(f"needs {WORLD} GPUs, and torch sees {torch.cuda.device_count()}")
    if not torch.distributed.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    folder = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [sys.executable, "-m", "tests.loops.ratio_ranks", str(folder), "nccl", str(WORLD)],
        cwd=ROOT, env={**os.environ, "GPUMON_RUNTIME_DIR": str(folder / "run")},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"{WORLD}-{rank}.json").read_text()) for rank in range(WORLD)]
    return json.loads((folder / "alone.json").read_text()), ranks


class TestRanksOnGpus:
    def test_learn_the_weights_of_one_gpu(self, learned: tuple[dict[str, Any], list[Any]]) -> None:
        exact = [name for name in courses_of("ddp", WORLD) if name in EXACT]

        assert {name: furthest(*learned, name) <= PLAIN for name in exact} == dict.fromkeys(
            exact, True
        )

    def test_normalise_like_one_gpu_with_synced_batch_norm(
        self, learned: tuple[dict[str, Any], list[Any]]
    ) -> None:
        assert furthest(*learned, SYNCED_NORM) <= NORMALISED

    def test_agree_over_nccl(self, learned: tuple[dict[str, Any], list[Any]]) -> None:
        _, ranks = learned

        assert [reported["sums"]["sum"] for reported in ranks] == [3.0, 3.0]
        for reported in ranks:
            assert "seed" in reported["disagreements"]["seeds"]
            assert re.findall(r"\d", reported["disagreements"]["seeds"]) == ["0", "0", "1", "1"]


def furthest(alone: dict[str, Any], ranks: list[Any], course: str) -> float:
    """The largest difference of any rank's weights from those of one process."""
    far: float = max(
        abs(one - other)
        for reported in ranks
        for one, other in zip(
            alone[str(WORLD)][course][0], reported[f"ddp: {course}"]["weights"], strict=True
        )
    )
    return far

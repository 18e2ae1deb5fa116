"""Lightning, Accelerate and the Hugging Face Trainer, split by ratios, learn as one device does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ROOT, ran_python

pytestmark = pytest.mark.keras_torch

WORLDS = (2, 3)
EXACTLY = 5e-7
"""How far off weights of float32 may be after 20 steps or more."""
COURSES = [
    (trainer, course)
    for trainer in ("lightning", "accelerate", "trainer")
    for course in ("in order", "accumulated, and resumed on other ratios")
] + [("trainer", "whole batches only"), ("trainer", "labels that count")]


class Ranks:
    """What all ranks of both jobs wrote down, and what one process learned."""

    def __init__(self, folder: Path) -> None:
        self.alone = json.loads((folder / "alone.json").read_text())
        self._of_rank = {
            (world, rank): json.loads((folder / f"{world}-{rank}.json").read_text())
            for world in WORLDS
            for rank in range(world)
        }

    def reports(self, world: int, name: str) -> list[Any]:
        """What each rank of a job reports of something."""
        return [self._of_rank[world, rank][name] for rank in range(world)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """All is trained at once: to import the trainers takes longer than to train with them."""
    folder = tmp_path_factory.mktemp("ranks")
    environ = {"OMP_NUM_THREADS": "1", "GPUMON_RUNTIME_DIR": str(folder / "run")}
    done = ran_python(
        "-m", "tests.loops.ratio_ranks", folder, *map(str, WORLDS), environ=environ, timeout_s=200
    )
    assert done.returncode == 0, done.stderr
    return Ranks(folder)


@pytest.mark.parametrize("world", [pytest.param(world, id=f"{world} ranks") for world in WORLDS])
class TestTheRanksOfAJob:
    @pytest.mark.parametrize(("trainer", "course"), COURSES)
    def test_learn_what_one_process_does_in_as_many_steps(
        self, ranks: Ranks, world: int, trainer: str, course: str
    ) -> None:
        weights, steps = ranks.alone[str(world)][course]

        assert steps >= 20
        for report in ranks.reports(world, f"{trainer}: {course}"):
            assert report["steps"] == steps
            assert report["weights"] == pytest.approx(weights, rel=0, abs=EXACTLY)


@pytest.mark.parametrize("name", ["unequal_lightning", "unequal_accelerate", "unequal_trainer"])
class TestAnExample:
    def test_adds_at_most_three_lines_to_an_ordinary_script(self, name: str) -> None:
        lines = (ROOT / "examples" / f"{name}.py").read_text().splitlines()
        added = [line for line in lines if "# added" in line]

        assert 1 < len(added) <= 3
        assert [line for line in lines if "Ratio" in line or "ratios" in line] == added

    def test_gives_the_first_of_two_ranks_three_samples_of_five(
        self, ranks: Ranks, name: str
    ) -> None:
        first, second = ranks.reports(2, f"example: {name}")

        assert first["samples"] == [60, 60, 60, 60, 48] * 5
        assert second["samples"] == [40, 40, 40, 40, 32] * 5
        assert first["weights"] == second["weights"]

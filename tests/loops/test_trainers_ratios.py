"""Lightning, Accelerate and the Hugging Face Trainer, split by ratios, learn as one device does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.programs import ROOT, ran_python
from trainer_hooks.accelerate import split_by_ratios, why_not_split

huggingface: Any = ImportedLater("trainer_hooks.huggingface")
lightning: Any = ImportedLater("trainer_hooks.lightning")

pytestmark = pytest.mark.keras_torch

RANK_COUNTS = (2, 3)
EXACTLY = 5e-7
"""How far off weights of float32 may be after 20 steps or more."""
TRAINERS = ("lightning", "accelerate", "trainer")
COURSES = [
    (trainer, course)
    for trainer in TRAINERS
    for course in ("in order", "accumulated, and resumed on other ratios")
] + [
    ("trainer", "whole batches only"),
    ("trainer", "labels that count"),
    ("fsdp2", "accumulated"),
]


def is_tried(course: tuple[str, str]) -> bool:
    """Whether three ranks learn it: in CI only the hardest of each trainer's."""
    is_hardest = course[1] == "accumulated, and resumed on other ratios"
    return is_hardest or bool(os.environ.get("GPUMON_WHOLE_TABLE"))


class Ranks:
    """What all ranks of both jobs wrote down, and what one process learned."""

    def __init__(self, folder: Path) -> None:
        self.alone = json.loads((folder / "alone.json").read_text())
        self._of_rank = {
            (world, rank): json.loads((folder / f"{world}-{rank}.json").read_text())
            for world in RANK_COUNTS
            for rank in range(world)
        }

    def reports(self, world: int, name: str) -> list[Any]:
        """What each rank of a job reports of something."""
        return [self._of_rank[world, rank][name] for rank in range(world)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """All is trained at once: importing the trainers lasts longer than training with them."""
    folder = tmp_path_factory.mktemp("ranks")
    environ = {"OMP_NUM_THREADS": "1", "GPUMON_RUNTIME_DIR": str(folder / "run")}
    done = ran_python(
        "-m",
        "tests.loops.ratio_ranks",
        folder,
        *map(str, RANK_COUNTS),
        environ=environ,
        timeout_s=200,
    )
    assert done.returncode == 0, done.stderr
    return Ranks(folder)


class TestTheRanksOfAJob:
    @pytest.mark.parametrize(
        ("world", "trainer", "course"),
        [
            (world, *course)
            for world in RANK_COUNTS
            for course in COURSES
            if world == 2 or is_tried(course)
        ],
    )
    def test_learn_what_one_process_does_in_as_many_steps(
        self, ranks: Ranks, world: int, trainer: str, course: str
    ) -> None:
        weights, steps = ranks.alone[str(world)][course]

        assert steps >= 20
        for report in ranks.reports(world, f"{trainer}: {course}"):
            assert report["steps"] == steps
            assert report["weights"] == pytest.approx(weights, rel=0, abs=EXACTLY)


@pytest.mark.parametrize("trainer", ["ddp", "lightning"])
class TestABalancer:
    """The second of two ranks needs twice as long for a sample as the first."""

    def test_balances_the_ratios_and_changes_nothing_else(self, ranks: Ranks, trainer: str) -> None:
        weights, _ = ranks.alone["2"]["levelled"]
        reports = ranks.reports(2, f"{trainer}: levelled")

        assert reports[0] == reports[1]
        epoch, step, ratios = reports[0]["changes"][0]
        assert (epoch, step) == (0, 4), "after a step that is not measured, and four that are"
        assert ratios == pytest.approx([2 / 3, 1 / 3], abs=0.1)
        assert reports[0]["weights"] == pytest.approx(weights, rel=0, abs=EXACTLY)


class TestWhatCannotBeSplit:
    @pytest.mark.parametrize(
        ("trainer", "what", "sentence"),
        [
            *((trainer, "ratios", "must have the same ratios") for trainer in TRAINERS),
            *((trainer, "stream", "make it a dataset with len()") for trainer in TRAINERS),
            ("lightning", "too many ratios", "3 for 2 ranks"),
            ("lightning", "one rank", "give the DataLoader shuffle=True or shuffle=False"),
            ("lightning", "weighted", "the order of a WeightedRandomSampler: give"),
            ("lightning", "twice", "give the DataLoader as it was made"),
            ("lightning", "batches", "make one DataLoader of a dataset that joins theirs"),
            ("lightning", "iterator", "write training_step(batch, batch_idx)"),
            ("lightning", "accumulation", "leave GradientAccumulationScheduler out"),
            ("lightning", "resumed too early", "leave trainer.estimated_stepping_batches out"),
            ("lightning", "drawn too early", "leave trainer.estimated_stepping_batches out"),
            ("lightning", "unlike balancers", "same every: rank 0 has 5, and rank 1 has 6"),
            ("accelerate", "levelled", "RatioBalancer works in your own loop"),
            ("trainer", "levelled", "RatioBalancer works in your own loop"),
            ("accelerate", "one rank", "-2 is not one"),
            ("accelerate", "one of two models", "pass torch.nn.ModuleList([enc, head])"),
            ("accelerate", "a list of models", "pass torch.nn.ModuleList([enc, head])"),
            ("accelerate", "frozen model", "it was not refused"),
            ("accelerate", "split", "leave split_batches out"),
            ("accelerate", "dispatched", "set dispatch_batches=False"),
            ("accelerate", "unprepared", "prepare the model and the loader first"),
            ("accelerate", "skipped before", "write loader.set_epoch(epoch, start_step=steps)"),
            ("accelerate", "beside", "make one DataLoader of a dataset that joins theirs"),
            ("accelerate", "twice", "call split_by_ratios once"),
            ("accelerate", "drawn", "prepare a DataLoader with batch_size= and shuffle="),
            ("accelerate", "skipped", "write loader.set_epoch(epoch, start_step=steps)"),
            ("trainer", "grouped", "group_by_length and batch_rebalance assume equal ranks"),
            ("trainer", "own tokens", "set average_tokens_across_devices=True"),
            ("trainer", "too few", "set dataloader_drop_last=True"),
            ("trainer", "own loss", "set loss_is_scaled_for_ga = False"),
            ("trainer", "split", "leave split_batches out"),
        ],
    )  # fmt: skip
    def test_is_refused_on_every_rank_with_what_to_write(
        self, ranks: Ranks, trainer: str, what: str, sentence: str
    ) -> None:
        first, second = (report[what] for report in ranks.reports(2, f"{trainer}: refusals"))

        assert sentence in second
        assert first == (f"rank 1 cannot continue: {second}" if what == "one rank" else second)

    def test_is_a_trainer_that_divides_losses_otherwise(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(huggingface.Trainer, "training_step", lambda *_: None)

        refusal = huggingface._why_not(object(), None, None, None)
        assert "upgrade it to 4.55 or newer" in str(refusal)

    def test_is_a_single_process(self) -> None:
        with pytest.raises(ValueError, match="start the script with accelerate launch"):
            split_by_ratios(SimpleNamespace(num_processes=1), None, None, ratios=[1])

    @pytest.mark.parametrize(
        ("name", "make"),
        [
            ("RatioStrategy", lambda: lightning.RatioStrategy()),
            ("RatioCallback", lambda: huggingface.RatioCallback()),
        ],
    )
    def test_is_a_trainer_without_ratios(self, name: str, make: Callable[[], Any]) -> None:
        with pytest.raises(TypeError, match=rf"write {name}\(\[3, 2\]\)"):
            make()

    def test_is_an_engine_with_gradients_of_its_own(self) -> None:
        engine = SimpleNamespace(distributed_type=SimpleNamespace(name="FSDP"))

        assert "with FSDP here: train in your own loop" in str(why_not_split(engine, None))


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

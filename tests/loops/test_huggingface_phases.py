"""The phases of the Hugging Face Trainer, compared with sleeps that time themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import RingContents, Waits, finds_wait, own_ring, present, stretch
from tests.loops.phases_of_a_trainer import (
    BATCHES,
    VALIDATED,
    PhasesOfATrainer,
    Training,
    slow_everywhere,
)

pytestmark = pytest.mark.keras_torch

HEAVY = {"eval_strategy": "epoch", "save_strategy": "steps", "save_steps": 6}


@pytest.fixture(scope="class")
def training(builders: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    folder = tmp_path_factory.mktemp("huggingface")
    slow = {"waits": slow_everywhere(), "batches": BATCHES, "evaluated": VALIDATED}
    with own_ring(folder):
        # What torch and transformers do once in a process does not count.
        builders.trainer(folder, batches=1, num_train_epochs=1).train()
        trainer = builders.trainer(folder, builders.tagger(), **slow, **HEAVY)
        builders.time_optimizer(trainer)
        with stretch() as found:
            trainer.train()
        yield Training(trainer.waits, found[0], trainer, global_step=trainer.state.global_step)


@pytest.mark.versions
class TestOfATrainingThatMostlyEvaluatesAndSaves(PhasesOfATrainer):
    framework, own_class = "huggingface", "SlowSentences"
    validation_called_in = "builders_huggingface.py"  # its trainer has an ``evaluate`` of its own

    def test_nothing_stays_on_the_trainer(self, training: Training, builders: Any) -> None:
        assert builders.shadowed(training.trainer) == set()


class TestSteps:
    @pytest.mark.measured
    def test_are_steps_of_the_optimizer_when_batches_are_accumulated(
        self, builders: Any, tmp_path: Path
    ) -> None:
        waits = Waits(fetch=0.01)
        settings = {"waits": waits, "batches": 12, "num_train_epochs": 1}
        trainer = builders.trainer(
            tmp_path, builders.tagger(), **settings, gradient_accumulation_steps=4
        )
        with stretch() as found:
            trainer.train()

        assert found[0].after.steps == trainer.state.global_step == 3
        assert found[0].after.samples == 12 * builders.BATCH
        assert finds_wait(found[0], waits.fetch.spent_ns, steps=12)

    def test_begin_with_the_last_of_their_batches(self, builders: Any, tmp_path: Path) -> None:
        phases: list[str] = []
        settings = {"batches": 4, "num_train_epochs": 1, "gradient_accumulation_steps": 2}
        trainer = builders.trainer(tmp_path, builders.tagger(), **settings)
        fetch = trainer.get_batch_samples

        def fetch_and_count(*args: Any) -> Any:
            fetched = fetch(*args)
            phases.append(present()[0])
            return fetched

        trainer.get_batch_samples = fetch_and_count
        trainer.train()

        assert phases == ["train_step", "train_step"]

    def test_are_those_of_the_resumed_part(self, builders: Any, tmp_path: Path) -> None:
        settings = {"batches": 6, "save_strategy": "steps", "save_steps": 4, "num_train_epochs": 1}
        builders.trainer(tmp_path, **settings).train()
        trainer = builders.trainer(tmp_path, builders.tagger(), **settings)
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))

        assert (RingContents().steps, trainer.state.global_step) == (2, 6)

    def test_are_counted_once_by_two_taggers(self, builders: Any, tmp_path: Path) -> None:
        settings = {"batches": 8, "num_train_epochs": 1}
        trainer = builders.trainer(tmp_path, builders.tagger(), builders.tagger(), **settings)
        trainer.train()

        ring = RingContents()
        assert (ring.steps, ring.epoch) == (trainer.state.global_step, 0) == (8, 0)
        assert builders.shadowed(trainer) == set()

"""Specification of PhaseTagger for the Hugging Face Trainer, against sleeps with a clock."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import RingSays, Waits, finds_wait, own_ring, stretch
from tests.loops.phases_of_a_trainer import (
    BATCHES,
    VALIDATED,
    PhasesOfATrainer,
    Training,
    slow_everywhere,
)
from trainer_hooks.ring import process_ring

pytestmark = pytest.mark.keras_torch

HEAVY = {"eval_strategy": "epoch", "save_strategy": "steps", "save_steps": 6}


def tagger(**said: Any) -> Any:
    from trainer_hooks.huggingface import PhaseTagger

    return PhaseTagger(**said)


@pytest.fixture(scope="class")
def training(b: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    folder = tmp_path_factory.mktemp("huggingface")
    waits = slow_everywhere()
    with own_ring(folder):
        # What torch and transformers do only once in a process is no part of the truth.
        b.trainer(folder, Waits(), batches=1, num_train_epochs=1).train()
        trainer = b.trainer(folder, waits, tagger(), batches=BATCHES, evaluated=VALIDATED, **HEAVY)
        b.time_optimizer(trainer)
        with stretch() as found:
            trainer.train()
        yield Training(waits, found[0], trainer, global_step=trainer.state.global_step)


class TestOfATrainingThatMostlyEvaluatesAndSaves(PhasesOfATrainer):
    def test_the_facts_say_what_trains_and_how_it_loads(self, training: Training, b: Any) -> None:
        facts = training.seen.after.facts

        assert facts.framework == "huggingface"
        assert (facts.loader["workers"], facts.loader["batch_size"]) == (0, b.BATCH)
        assert facts.loader["batches"] == BATCHES

    def test_nothing_stays_on_the_trainer(self, training: Training) -> None:
        assert own_methods(training.trainer) == set()
        assert (training.seen.after.present, training.seen.after.mode) == ("other", 0)


def own_methods(trainer: Any) -> set[str]:
    """Methods that were put on the trainer itself, or on the handler of its callbacks."""
    looked_at = {**vars(trainer), **vars(trainer.callback_handler)}
    return {name for name, value in looked_at.items() if "HuggingFaceTagging" in repr(value)}


class TestSteps:
    @pytest.mark.measured
    def test_are_steps_of_the_optimizer_when_batches_are_accumulated(
        self, b: Any, tmp_path: Path
    ) -> None:
        waits = Waits(fetch=0.01)
        accumulating = {"num_train_epochs": 1, "gradient_accumulation_steps": 4}
        trainer = b.trainer(tmp_path, waits, tagger(), batches=12, **accumulating)
        with stretch() as found:
            trainer.train()

        assert found[0].after.steps == trainer.state.global_step == 3
        assert found[0].after.samples == 12 * b.BATCH
        assert finds_wait(found[0], waits.fetch.spent_ns, steps=12)

    def test_are_counted_of_the_part_that_is_resumed(self, b: Any, tmp_path: Path) -> None:
        saving = {"save_strategy": "steps", "save_steps": 4, "num_train_epochs": 1}
        b.trainer(tmp_path, Waits(), batches=6, **saving).train()
        trainer = b.trainer(tmp_path, Waits(), tagger(), batches=6, **saving)
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))

        assert (RingSays().steps, trainer.state.global_step) == (2, 6)


class TestATrainingThatRaises:
    @pytest.mark.parametrize("where", ["training_step", "_get_learning_rate"])
    def test_passes_the_error_on_and_leaves_nothing_behind(
        self, b: Any, tmp_path: Path, where: str
    ) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger())
        trainer.fails_at, trainer.fails_in = 3, where

        with pytest.raises(OSError, match="out of memory") as caught:
            trainer.train()
        del caught  # its traceback keeps the loop's variables alive
        gc.collect()

        assert own_methods(trainer) == set()
        assert (RingSays().present, RingSays().steps) == ("other", 3)

    def test_is_followed_by_one_that_is_tagged_again(self, b: Any, tmp_path: Path) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger(), batches=4, num_train_epochs=1)
        trainer.fails_at = 2
        with pytest.raises(OSError, match="out of memory"):
            trainer.train()

        trainer.fails_at = None
        trainer.train()

        assert RingSays().steps == 2 + 4

    def test_in_a_callback_leaves_nothing_behind(self, b: Any, tmp_path: Path) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger())
        trainer.waits.callback.seconds = -1.0

        with pytest.raises(ValueError, match="non-negative"):
            trainer.train()

        assert own_methods(trainer) == set()
        assert RingSays().present == "other"


class TestResults:
    @pytest.mark.parametrize(
        "said", [{}, HEAVY, {"gradient_accumulation_steps": 3}], ids=["plain", "heavy", "3 a step"]
    )
    def test_are_the_same_with_and_without(
        self, b: Any, tmp_path: Path, said: dict[str, Any]
    ) -> None:
        outcomes = []
        for name, hooks in (("bare", []), ("tagged", [tagger()])):
            trainer = b.trainer(tmp_path / name, Waits(), *hooks, **said)
            trainer.train()
            outcomes.append(
                (b.outcome(trainer), trainer.predict(trainer.eval_dataset).metrics["test_loss"])
            )

        assert outcomes[0] == outcomes[1]

    def test_are_the_same_where_no_ring_can_be_made(
        self, b: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bare = b.trainer(tmp_path / "bare", Waits())
        bare.train()
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "file"))
        monkeypatch.setattr(process_ring._Slot, "ring", None)

        with pytest.warns(RuntimeWarning, match="records no phases"):
            hook = tagger()
        tagged = b.trainer(tmp_path / "tagged", Waits(), hook)
        tagged.train()

        assert b.outcome(tagged) == b.outcome(bare)


class TestTheCallback:
    def test_may_be_handed_over_as_a_class(self, b: Any, tmp_path: Path) -> None:
        from trainer_hooks.huggingface import PhaseTagger

        b.trainer(tmp_path, Waits(), PhaseTagger, batches=3, num_train_epochs=1).train()

        assert RingSays().steps == 3

    def test_can_be_pickled(self) -> None:
        assert pickle.loads(pickle.dumps(tagger(run="bert")))._run == "bert"


def shadowed(trainer: Any) -> set[str]:
    """Methods that the instance has in front of those of its class."""
    return {name for name in vars(trainer) if callable(getattr(type(trainer), name, None))}


class TestTwoTaggersOfOneTrainer:
    def test_count_each_step_once_and_leave_the_trainer_as_it_was(
        self, b: Any, tmp_path: Path
    ) -> None:
        with own_ring(tmp_path):
            trainer = b.trainer(
                tmp_path, Waits(), tagger(), tagger(), batches=8, num_train_epochs=1
            )
            before = shadowed(trainer)
            trainer.train()
            writer = process_ring.process_ring().writer

            assert writer is not None
            assert writer.steps == trainer.state.global_step == 8
            assert shadowed(trainer) == before

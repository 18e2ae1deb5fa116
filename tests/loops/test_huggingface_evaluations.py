"""An ``evaluate`` or ``predict`` of a Hugging Face Trainer that is not training."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import RingSays, Waits, finds_wait, stretch
from trainer_hooks import phase

pytestmark = pytest.mark.keras_torch


@pytest.fixture(scope="module")
def b() -> Any:
    return import_module("tests.loops.builders_huggingface")


def tagger() -> Any:
    from trainer_hooks.huggingface import PhaseTagger

    return PhaseTagger()


def fail(*_: object, **__: object) -> Any:
    raise OSError("out of memory, say")


class BrokenRows:
    """As many as asked for, of which the last cannot be read."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index] if index < len(self) - 1 else fail()


class TestAnEvaluationOutsideOfTraining:
    @pytest.mark.measured
    @pytest.mark.parametrize("trained", [False, True], ids=["before train", "after train"])
    def test_is_told_from_its_first_batch_on(self, b: Any, tmp_path: Path, trained: bool) -> None:
        waits = Waits()
        hook = b.trainer(tmp_path, waits, tagger(), batches=2, evaluated=4, num_train_epochs=1)
        if trained:
            hook.train()
        waits.validation_fetch.seconds, waits.validation_step.seconds = 0.02, 0.03
        fetched_ns = waits.validation_fetch.spent_ns
        with stretch() as found:
            hook.evaluate()

        told_ns = found[0].phase_ns
        assert told_ns["validation"] >= waits.validation_step.spent_ns
        waited_ns = waits.validation_fetch.spent_ns - fetched_ns
        assert finds_wait(found[0], waited_ns, steps=4)
        assert (found[0].after.present, found[0].after.mode) == ("other", 0)

    def test_is_told_as_predict_where_it_predicts(self, b: Any, tmp_path: Path) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger())
        trainer.predict(trainer.eval_dataset)

        assert {("predict", 2), ("input_wait", 2)} <= set(RingSays().phases())
        assert ("validation", 1) not in RingSays().phases()

    @pytest.mark.parametrize("what", ["evaluate", "predict"])
    @pytest.mark.parametrize("where", ["prediction_step", "compute_metrics", "a row"])
    def test_that_raises_is_over(self, b: Any, tmp_path: Path, what: str, where: str) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger())
        rows = trainer.eval_dataset
        if where == "a row":
            rows = BrokenRows(rows)
        elif where == "compute_metrics":
            trainer.compute_metrics = fail
        else:
            steps = iter([trainer.prediction_step, trainer.prediction_step, fail])
            trainer.prediction_step = lambda *a, **k: next(steps)(*a, **k)
        with pytest.raises(OSError, match="out of memory") as caught:
            getattr(trainer, what)(rows)

        assert (RingSays().present, RingSays().mode) == ("other", 0)
        assert caught.tb is not None  # also while somebody keeps what was going on
        assert "evaluation_loop" not in vars(trainer)

    def test_that_has_nothing_to_evaluate_changes_no_phase(self, b: Any, tmp_path: Path) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger(), batches=3, num_train_epochs=1)
        trainer.eval_dataset = None
        with pytest.raises(ValueError, match="eval_dataset"):
            trainer.evaluate()

        assert RingSays().present == "start_up"
        trainer.predict(trainer.train_dataset)
        assert ("validation", 1) not in RingSays().phases()
        assert ("predict", 2) in RingSays().phases()

    def test_that_has_nothing_to_evaluate_leaves_nothing_in_the_way_of_a_training(
        self, b: Any, tmp_path: Path
    ) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger(), batches=3, num_train_epochs=1)
        trainer.eval_dataset = None
        with pytest.raises(ValueError, match="eval_dataset"):
            trainer.evaluate()
        trainer.train()

        assert (RingSays().present, RingSays().steps) == ("other", 3)
        assert "evaluation_loop" not in vars(trainer)

    def test_ends_where_it_raises_inside_of_training_too(self, b: Any, tmp_path: Path) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger(), eval_strategy="steps", eval_steps=2)
        trainer.prediction_step = fail
        with pytest.raises(OSError, match="out of memory"):
            trainer.train()

        assert (RingSays().present, RingSays().steps) == ("other", 2)

    def test_says_the_same_as_without(self, b: Any, tmp_path: Path) -> None:
        losses = [
            b.trainer(tmp_path, Waits(), *hooks).evaluate()["eval_loss"]
            for hooks in ([], [tagger()], [tagger(), tagger()])
        ]

        assert losses[0] == losses[1] == losses[2]


class TestATrainerThatEvaluated:
    def test_is_freed_as_soon_as_nobody_wants_it(self, b: Any, tmp_path: Path) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger(), batches=2, num_train_epochs=1)
        trainer.evaluate()
        trainer.train()
        gc.collect()
        gone = weakref.ref(trainer)
        gc.disable()
        try:
            del trainer
            assert gone() is None
        finally:
            gc.enable()

    @pytest.mark.parametrize("copied", [copy.copy, lambda it: pickle.loads(pickle.dumps(it))])
    def test_has_a_clock_of_memory_that_can_be_copied(
        self, b: Any, tmp_path: Path, copied: Any
    ) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger())
        trainer.evaluate()

        assert copied(trainer._memory_tracker).start() is None

    def test_on_another_thread_leaves_the_phases_to_the_first(self, b: Any, tmp_path: Path) -> None:
        trainer = b.trainer(tmp_path, Waits(), tagger(), batches=2, num_train_epochs=1)
        beside = threading.Thread(target=trainer.train)
        beside.start()
        beside.join()
        with phase("checkpoint"):
            assert RingSays().present == "checkpoint"

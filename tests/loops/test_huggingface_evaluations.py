"""``evaluate`` and ``predict`` of a Hugging Face Trainer outside of training."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import (
    RingContents,
    WrongInTheMiddleError,
    finds_wait,
    present,
    raise_error,
    stretch,
)

pytestmark = pytest.mark.keras_torch

SHORT = {"batches": 2, "num_train_epochs": 1}


class BrokenRows:
    """Rows whose last one cannot be read."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index] if index < len(self) - 1 else raise_error()


class TestAnEvaluationOutsideOfTraining:
    @pytest.mark.measured
    @pytest.mark.parametrize("trained", [False, True], ids=["before train", "after train"])
    def test_is_recorded_from_its_first_batch_on(
        self, builders: Any, tmp_path: Path, trained: bool
    ) -> None:
        trainer = builders.trainer(tmp_path, builders.tagger(), **SHORT)
        if trained:
            trainer.train()
        waits = trainer.waits
        waits.validation_fetch.seconds, waits.validation_step.seconds = 0.02, 0.03
        fetched_ns = waits.validation_fetch.spent_ns
        with stretch() as found:
            trainer.evaluate()

        assert found[0].phase_ns["validation"] >= waits.validation_step.spent_ns
        waited_ns = waits.validation_fetch.spent_ns - fetched_ns
        assert finds_wait(found[0], waited_ns, steps=4)
        assert present() == ("other", 0)

    def test_is_recorded_as_predict_where_it_predicts(self, builders: Any, tmp_path: Path) -> None:
        trainer = builders.trainer(tmp_path, builders.tagger())
        trainer.predict(trainer.eval_dataset)

        assert {("predict", 2), ("input_wait", 2)} <= set(RingContents().phases())
        assert ("validation", 1) not in RingContents().phases()

    @pytest.mark.parametrize("where", ["prediction_step", "compute_metrics", "a row"])
    def test_evaluation_that_raises_is_over(
        self, builders: Any, tmp_path: Path, where: str
    ) -> None:
        trainer = builders.trainer(tmp_path, builders.tagger())
        rows = trainer.eval_dataset
        if where == "a row":
            rows = BrokenRows(rows)
        elif where == "compute_metrics":
            trainer.compute_metrics = raise_error
        else:
            steps = iter([trainer.prediction_step, trainer.prediction_step, raise_error])
            trainer.prediction_step = lambda *a, **k: next(steps)(*a, **k)
        with pytest.raises(WrongInTheMiddleError) as caught:
            trainer.evaluate(rows)

        assert present() == ("other", 0)
        assert caught.tb is not None  # also while its frames are kept
        assert "evaluation_loop" not in vars(trainer)

    def test_empty_evaluation_changes_no_phase(self, builders: Any, tmp_path: Path) -> None:
        trainer = builders.trainer(tmp_path, builders.tagger(), **SHORT)
        trainer.eval_dataset = None
        with pytest.raises(ValueError, match="eval_dataset"):
            trainer.evaluate()
        assert RingContents().present == "start_up"

        trainer.train()
        assert (RingContents().present, RingContents().steps) == ("other", 2)
        assert ("validation", 1) not in RingContents().phases()
        assert "evaluation_loop" not in vars(trainer)


class TestATrainerThatEvaluated:
    def test_is_freed_as_soon_as_it_is_unreferenced(self, builders: Any, tmp_path: Path) -> None:
        trainer = builders.trainer(tmp_path, builders.tagger(), **SHORT)
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
    def test_has_a_memory_tracker_that_can_be_copied(
        self, builders: Any, tmp_path: Path, copied: Any
    ) -> None:
        trainer = builders.trainer(tmp_path, builders.tagger())
        trainer.evaluate()

        assert copied(trainer._memory_tracker).start() is None

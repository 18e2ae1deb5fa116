"""Specification of PhaseTagger for Lightning, against sleeps that know how long they took."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
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

pytestmark = pytest.mark.keras_torch

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def tagger(**said: Any) -> Any:
    from trainer_hooks.lightning import PhaseTagger

    return PhaseTagger(**said)


@pytest.fixture(scope="class", params=PACKAGES)
def training(
    request: pytest.FixtureRequest, b: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Training]:
    package = import_module(request.param)
    folder = tmp_path_factory.mktemp("lightning")
    waits = slow_everywhere()
    with own_ring(folder):
        # What torch and Lightning do only once in a process is no part of the truth.
        b.trainer(package, folder, max_epochs=1).fit(b.model(package, Waits()), b.loader(1))
        trainer = b.trainer(
            package,
            folder,
            b.slow_callback(package, waits),
            tagger(),
            b.slow_checkpoints(package, waits, folder),
        )
        trainer.profiler_before = trainer.profiler
        with stretch() as found:
            trainer.fit(
                b.model(package, waits),
                b.loader(BATCHES, waits.fetch),
                b.loader(VALIDATED, waits.validation_fetch),
            )
        yield Training(waits, found[0], trainer, global_step=trainer.global_step)


class TestOfATrainingThatMostlyValidatesAndSaves(PhasesOfATrainer):
    def test_a_checkpoint_at_the_end_of_validation_is_no_validation(
        self, training: Training
    ) -> None:
        assert ("checkpoint", 0) in training.seen.after.phases()

    def test_the_facts_say_what_trains_and_how_it_loads(self, training: Training, b: Any) -> None:
        facts = training.seen.after.facts

        assert facts.framework == "lightning"
        assert facts.loader["kind"] == "DataLoader"
        assert (facts.loader["workers"], facts.loader["batch_size"]) == (0, b.BATCH)
        assert facts.loader["batches"] == BATCHES

    def test_the_trainer_has_its_profiler_back(self, training: Training) -> None:
        assert training.trainer.profiler is training.trainer.profiler_before

    def test_what_comes_afterwards_is_no_training(self, training: Training) -> None:
        assert (training.seen.after.present, training.seen.after.mode) == ("other", 0)


class TestAFitThatRaises:
    def test_gives_the_profiler_back_and_passes_the_error_on(
        self, b: Any, pl: Any, tmp_path: Path
    ) -> None:
        trainer = b.trainer(pl, tmp_path, tagger())
        profiler = trainer.profiler

        with pytest.raises(OSError, match="out of memory"):
            trainer.fit(b.model(pl, Waits(), fails_at=3), b.loader(6))

        assert trainer.profiler is profiler
        assert (RingSays().present, RingSays().steps) == ("other", 3)

    def test_is_followed_by_one_that_is_tagged_again(self, b: Any, pl: Any, tmp_path: Path) -> None:
        hook = tagger()
        with pytest.raises(OSError, match="out of memory"):
            b.trainer(pl, tmp_path, hook).fit(b.model(pl, Waits(), fails_at=0), b.loader(6))

        b.trainer(pl, tmp_path, hook).fit(b.model(pl, Waits()), b.loader(6))

        assert RingSays().steps == 12

    def test_in_validation_ends_the_validation(self, b: Any, pl: Any, tmp_path: Path) -> None:
        model = b.model(pl, Waits())

        def fail(*_: object) -> None:
            raise OSError("no disk")

        model.validation_step = fail
        with pytest.raises(OSError, match="no disk"):
            b.trainer(pl, tmp_path, tagger()).fit(model, b.loader(2), b.loader(2))

        assert (RingSays().present, RingSays().mode) == ("other", 0)


class TestSteps:
    def test_are_steps_of_the_optimizer_when_batches_are_accumulated(
        self, b: Any, pl: Any, tmp_path: Path
    ) -> None:
        trainer = b.trainer(pl, tmp_path, tagger(), max_epochs=1, accumulate_grad_batches=3)
        trainer.fit(b.model(pl, Waits()), b.loader(12))

        assert (RingSays().steps, trainer.global_step) == (4, 4)
        assert RingSays().samples == 12 * b.BATCH

    def test_are_batches_when_the_model_optimizes_by_hand(
        self, b: Any, pl: Any, tmp_path: Path
    ) -> None:
        model = b.model_that_optimizes_by_hand(pl, Waits())
        b.trainer(pl, tmp_path, tagger(), max_epochs=1).fit(model, b.loader(7))

        assert RingSays().steps == 7

    def test_leave_out_the_batch_that_raised_when_the_model_optimizes_by_hand(
        self, b: Any, pl: Any, tmp_path: Path
    ) -> None:
        model = b.model_that_optimizes_by_hand(pl, Waits(), fails_at=4)
        with pytest.raises(OSError, match="out of memory"):
            b.trainer(pl, tmp_path, tagger(), max_epochs=1).fit(model, b.loader(7))

        assert RingSays().steps == 4

    @pytest.mark.measured
    def test_are_counted_where_the_model_fetches_its_batches_itself(
        self, b: Any, pl: Any, tmp_path: Path
    ) -> None:
        waits = Waits(fetch=0.01)
        model = b.model_that_fetches(pl, waits)
        with stretch() as found:
            b.trainer(pl, tmp_path, tagger(), max_epochs=1).fit(model, b.loader(8, waits.fetch))

        assert found[0].after.steps == 8
        assert finds_wait(found[0], waits.fetch.spent_ns, steps=8)


class TestOutsideOfFit:
    @pytest.mark.measured
    def test_validating_is_validation(self, b: Any, pl: Any, tmp_path: Path) -> None:
        waits = Waits(validation_step=0.02, validation_fetch=0.01)
        with stretch() as found:
            b.trainer(pl, tmp_path, tagger()).validate(
                b.model(pl, waits), b.loader(5, waits.validation_fetch), verbose=False
            )

        assert found[0].phase_ns["validation"] >= waits.validation_step.spent_ns
        assert finds_wait(found[0], waits.validation_fetch.spent_ns, steps=5)
        assert (found[0].after.present, found[0].after.steps) == ("other", 0)

    def test_predicting_is_predict(self, b: Any, pl: Any, tmp_path: Path) -> None:
        waits = Waits(fetch=0.01)
        b.trainer(pl, tmp_path, tagger()).predict(b.model(pl, waits), b.loader(3, waits.fetch))

        assert {("predict", 2), ("input_wait", 2)} <= set(RingSays().phases())

    def test_a_sanity_check_is_validation(self, b: Any, pl: Any, tmp_path: Path) -> None:
        trainer = b.trainer(pl, tmp_path, tagger(), num_sanity_val_steps=2, max_epochs=1)
        trainer.fit(b.model(pl, Waits()), b.loader(1), b.loader(2))

        phases = [phase for phase, _ in RingSays().phases()]
        assert phases.index("validation") < phases.index("train_step")

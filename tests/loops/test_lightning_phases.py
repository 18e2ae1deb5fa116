"""The phases of Lightning, compared with sleeps that time themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import (
    RingContents,
    Waits,
    WrongInTheMiddleError,
    finds_wait,
    own_ring,
    present,
    stretch,
)
from tests.loops.phases_of_a_trainer import (
    BATCHES,
    VALIDATED,
    PhasesOfATrainer,
    Training,
    slow_everywhere,
)

pytestmark = pytest.mark.keras_torch


@pytest.fixture(scope="class", params=["lightning.pytorch", "pytorch_lightning"])
def training(
    request: pytest.FixtureRequest, builders: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Training]:
    package = import_module(request.param)
    folder = tmp_path_factory.mktemp("lightning")
    waits = slow_everywhere()
    with own_ring(folder):
        # What torch and Lightning do once in a process does not count.
        warm_up = builders.trainer(folder, package=package, max_epochs=1)
        warm_up.fit(builders.model(package=package), builders.loader(1))
        slow = builders.callback(package, on_train_batch_end=lambda *_: waits.callback())
        saves = builders.slow_checkpoints(waits, folder, package)
        trainer = builders.trainer(folder, slow, builders.tagger(), saves, package=package)
        trainer.profiler_before = trainer.profiler
        model = builders.model(waits, package=package)
        with stretch() as found:
            trainer.fit(
                model,
                builders.loader(BATCHES, waits.fetch),
                builders.loader(VALIDATED, waits.validation_fetch),
            )
        yield Training(waits, found[0], trainer, global_step=trainer.global_step)


@pytest.mark.versions
class TestOfATrainingThatMostlyValidatesAndSaves(PhasesOfATrainer):
    framework, own_class = "lightning", "SlowLoader"
    validation_called_in = "test_lightning_phases.py"

    def test_a_checkpoint_at_the_end_of_validation_is_no_validation(
        self, training: Training
    ) -> None:
        assert ("checkpoint", 0) in training.seen.after.phases()

    def test_the_trainer_has_its_profiler_back(self, training: Training) -> None:
        assert training.trainer.profiler is training.trainer.profiler_before


class TestSteps:
    def test_are_steps_of_the_optimizer_when_batches_are_accumulated(
        self, builders: Any, tmp_path: Path
    ) -> None:
        trainer = builders.trainer(
            tmp_path, builders.tagger(), max_epochs=1, accumulate_grad_batches=3
        )
        trainer.fit(builders.model(), builders.loader(12))

        assert (RingContents().steps, trainer.global_step) == (4, 4)
        assert RingContents().samples == 12 * builders.BATCH

    @pytest.mark.parametrize(("fails_at", "steps"), [(None, 7), (4, 4)])
    def test_are_complete_batches_where_the_model_optimizes_by_hand(
        self, builders: Any, tmp_path: Path, fails_at: int | None, steps: int
    ) -> None:
        model = builders.model_that_optimizes_by_hand(fails_at=fails_at)
        with suppress(WrongInTheMiddleError):
            builders.trainer(tmp_path, builders.tagger(), max_epochs=1).fit(
                model, builders.loader(7)
            )

        assert RingContents().steps == steps

    @pytest.mark.measured
    def test_are_counted_where_the_model_fetches_its_batches(
        self, builders: Any, tmp_path: Path
    ) -> None:
        waits = Waits(fetch=0.01)
        model = builders.model_that_fetches(waits)
        with stretch() as found:
            builders.trainer(tmp_path, builders.tagger(), max_epochs=1).fit(
                model, builders.loader(8, waits.fetch)
            )

        assert found[0].after.steps == 8
        assert finds_wait(found[0], waits.fetch.spent_ns, steps=8)


class TestOutsideOfFit:
    @pytest.mark.measured
    def test_validating_is_validation(self, builders: Any, tmp_path: Path) -> None:
        waits = Waits(validation_step=0.02, validation_fetch=0.01)
        batches = builders.loader(5, waits.validation_fetch)
        with stretch() as found:
            builders.trainer(tmp_path, builders.tagger()).validate(
                builders.model(waits), batches, verbose=False
            )

        assert found[0].phase_ns["validation"] >= waits.validation_step.spent_ns
        assert finds_wait(found[0], waits.validation_fetch.spent_ns, steps=5)
        assert (present(), found[0].after.steps) == (("other", 0), 0)

    def test_predicting_is_predict(self, builders: Any, tmp_path: Path) -> None:
        builders.trainer(tmp_path, builders.tagger()).predict(builders.model(), builders.loader(3))

        assert {("predict", 2), ("input_wait", 2)} <= set(RingContents().phases())

    def test_a_sanity_check_is_validation(self, builders: Any, tmp_path: Path) -> None:
        trainer = builders.trainer(
            tmp_path, builders.tagger(), num_sanity_val_steps=2, max_epochs=1
        )
        trainer.fit(builders.model(), builders.loader(1), builders.loader(2))

        phases = [phase for phase, _ in RingContents().phases()]
        assert phases.index("validation") < phases.index("train_step")

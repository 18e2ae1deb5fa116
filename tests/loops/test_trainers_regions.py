"""Lightning and the Hugging Face Trainer inside of what somebody else says, and what follows."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

from tests.loops.builders_loops import RingSays, Waits
from tests.loops.builders_trainers import ADAPTERS, Adapter, OnHuggingFace
from trainer_hooks import phase

pytestmark = pytest.mark.keras_torch


@pytest.fixture(params=ADAPTERS)
def on(request: pytest.FixtureRequest) -> Adapter:
    return ADAPTERS[request.param]()


def present() -> tuple[str, int]:
    """The phase under way, and its mode."""
    return RingSays().present, RingSays().mode


class TestInsideARegionOfTheUsersOwn:
    def test_an_evaluation_goes_back_to_it(self, on: Adapter, tmp_path: Path) -> None:
        with phase("validation"):
            on.evaluate(tmp_path, on.tagger())
            assert present() == ("validation", 1)

        assert present() == ("other", 0)

    def test_and_inside_of_another_an_evaluation_goes_back_to_the_inner(
        self, on: Adapter, tmp_path: Path
    ) -> None:
        with phase("validation"):
            with phase("checkpoint"):
                on.evaluate(tmp_path, on.tagger())
                assert present() == ("checkpoint", 1)
            assert present() == ("validation", 1)

    def test_a_training_goes_back_to_it(self, on: Adapter, tmp_path: Path) -> None:
        with phase("checkpoint"):
            on.train(tmp_path, on.tagger(), epochs=1)
            assert present() == ("checkpoint", 0)

    def test_a_training_that_raises_goes_back_to_it(self, on: Adapter, tmp_path: Path) -> None:
        def fail() -> None:
            raise OSError("no network")

        with phase("checkpoint"):
            with pytest.raises(OSError, match="no network"):
                on.train(tmp_path, on.tagger(), on.callback("Remote", fail, "batch_end"))
            assert present() == ("checkpoint", 0)


class TestInsideOfATraining:
    def test_an_evaluation_by_a_callback_goes_back_to_the_callback(
        self, on: Adapter, tmp_path: Path
    ) -> None:
        seen = []

        def evaluate_another() -> None:
            on.evaluate(tmp_path / "other", on.tagger())
            seen.append(present())

        probe = on.callback("Probe", evaluate_another, "epoch_end")
        on.train(tmp_path, on.tagger(), probe, epochs=2)

        assert seen == [("callbacks", 0), ("callbacks", 0)]
        assert (present(), RingSays().steps) == (("other", 0), 12)


class TestATrainingThatRaisedBetweenTwoSteps:
    """Nothing that is shadowed raises there: only what goes with the error tells of it."""

    def fail(self, folder: Path) -> list[BaseException]:
        on = OnHuggingFace()
        trainer = on.b.trainer(folder, Waits(), on.tagger())
        trainer.fails_at, trainer.fails_in = 3, "_get_learning_rate"
        try:
            trainer.train()
        except OSError as error:
            return [error]
        raise AssertionError("it did not raise")

    def let_go_elsewhere(self, kept: list[BaseException]) -> None:
        def let_go() -> None:
            kept.clear()
            gc.collect()

        beside = threading.Thread(target=let_go)
        beside.start()
        beside.join()

    def test_ends_in_other_though_another_thread_collects_it(self, tmp_path: Path) -> None:
        gc.disable()
        try:
            kept = self.fail(tmp_path)
            assert present() != ("other", 0)
            self.let_go_elsewhere(kept)
        finally:
            gc.enable()

        assert (present(), RingSays().steps) == (("other", 0), 3)

    def test_lets_a_region_end_first_that_was_entered_since(self, tmp_path: Path) -> None:
        gc.disable()
        try:
            kept = self.fail(tmp_path)
            with phase("checkpoint"):
                self.let_go_elsewhere(kept)
                assert present() == ("checkpoint", 0)
        finally:
            gc.enable()

        assert present() == ("other", 0)

    def test_is_nothing_that_another_run_goes_back_to(self, tmp_path: Path) -> None:
        kept, on = self.fail(tmp_path), OnHuggingFace()
        on.evaluate(tmp_path, on.tagger())

        assert kept
        assert present() == ("other", 0)

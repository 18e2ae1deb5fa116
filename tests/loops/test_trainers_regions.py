"""Lightning and the Hugging Face Trainer inside of what somebody else says, and what follows."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from tests.loops.builders_loops import RingContents, WrongInTheMiddleError, present, raise_error
from tests.loops.builders_trainers import Adapter, OnHuggingFace
from trainer_hooks import phase

pytestmark = pytest.mark.keras_torch


class TestInsideARegionOfTheUsersOwn:
    def test_an_evaluation_goes_back_to_it_and_from_an_inner_one_to_the_outer(
        self, on: Adapter
    ) -> None:
        with phase("validation"):
            with phase("checkpoint"):
                on.evaluate(on.tagger())
                assert present() == ("checkpoint", 1)
            on.evaluate(on.tagger())
            assert present() == ("validation", 1)

        assert present() == ("other", 0)

    def test_a_training_goes_back_to_it(self, on: Adapter) -> None:
        with phase("checkpoint"):
            on.train(on.tagger(), epochs=1)
            assert present() == ("checkpoint", 0)

    def test_a_training_that_raises_goes_back_to_it(self, on: Adapter) -> None:
        with phase("checkpoint"):
            with pytest.raises(WrongInTheMiddleError):
                on.train(on.tagger(), on.callback("Remote", raise_error, "batch_end"))
            assert present() == ("checkpoint", 0)


class TestInsideOfATraining:
    def test_an_evaluation_by_a_callback_goes_back_to_the_callback(self, on: Adapter) -> None:
        seen = []

        def evaluate_another() -> None:
            on.evaluate(on.tagger())
            seen.append(present())

        on.train(on.tagger(), on.callback("Probe", evaluate_another, "epoch_end"))

        assert seen == [("callbacks", 0), ("callbacks", 0)]
        assert (present(), RingContents().steps) == (("other", 0), 12)


class TestATrainingThatRaisedBetweenTwoSteps:
    """Nothing that is shadowed raises there: only what goes with the error tells of it."""

    @pytest.fixture
    def kept(self, on_huggingface: OnHuggingFace) -> Iterator[list[BaseException]]:
        """Its error, which nobody collects before it is let go of."""
        trainer = on_huggingface.b.trainer(on_huggingface.folder, on_huggingface.tagger())
        trainer.fails_at, trainer.fails_in = 3, "_get_learning_rate"
        kept: list[BaseException] = []
        gc.disable()
        try:
            trainer.train()
        except OSError as error:
            kept.append(error)
        del trainer
        assert kept
        yield kept
        gc.enable()

    def let_go_elsewhere(self, kept: list[BaseException]) -> None:
        def let_go() -> None:
            kept.clear()
            gc.collect()

        beside = threading.Thread(target=let_go)
        beside.start()
        beside.join()

    def test_ends_in_other_though_another_thread_collects_it(
        self, kept: list[BaseException]
    ) -> None:
        assert present() != ("other", 0)
        self.let_go_elsewhere(kept)

        assert (present(), RingContents().steps) == (("other", 0), 3)

    def test_lets_a_region_end_first_that_was_entered_since(
        self, kept: list[BaseException]
    ) -> None:
        with phase("checkpoint"):
            self.let_go_elsewhere(kept)
            assert present() == ("checkpoint", 0)

        assert present() == ("other", 0)

    def test_is_nothing_that_another_run_goes_back_to(
        self, kept: list[BaseException], on_huggingface: OnHuggingFace
    ) -> None:
        on_huggingface.evaluate(on_huggingface.tagger())

        assert kept
        assert present() == ("other", 0)

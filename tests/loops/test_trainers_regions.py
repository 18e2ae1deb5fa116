"""Lightning and the Hugging Face Trainer inside other phases, and the phase that follows."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from tests.loops.builders_loops import RingContents, WrongInTheMiddleError, present, raise_error
from tests.loops.builders_trainers import Adapter, OnHuggingFace
from trainer_hooks import phase

pytestmark = pytest.mark.keras_torch


class TestInsideARegionOfTheUser:
    def test_an_evaluation_returns_to_it(self, on: Adapter) -> None:
        with phase("validation"):
            with phase("checkpoint"):
                on.evaluate(on.tagger())
                assert present() == ("checkpoint", 1)
            on.evaluate(on.tagger())
            assert present() == ("validation", 1)

        assert present() == ("other", 0)

    def test_a_run_returns_to_it_even_if_it_raises(self, on: Adapter) -> None:
        with phase("checkpoint"):
            on.train(on.tagger(), epochs=1)
            assert present() == ("checkpoint", 0)
            with pytest.raises(WrongInTheMiddleError):
                on.train(on.tagger(), on.callback("Remote", raise_error, "batch_end"))
            assert present() == ("checkpoint", 0)


def test_an_evaluation_in_a_callback_returns_to_the_callback(on: Adapter) -> None:
    seen = []

    def evaluate_another() -> None:
        on.evaluate(on.tagger())
        seen.append(present())

    on.train(on.tagger(), on.callback("Probe", evaluate_another, "epoch_end"))

    assert seen == [("callbacks", 0), ("callbacks", 0)]
    assert (present(), RingContents().steps) == (("other", 0), 12)


class TestARunThatRaisedBetweenTwoSteps:
    """No patched method raises there: only what is freed with the error shows it."""

    @pytest.fixture
    def kept(self, on_huggingface: OnHuggingFace) -> Iterator[list[BaseException]]:
        """Its error, which is not collected before it is released."""
        trainer = on_huggingface.builders.trainer(on_huggingface.folder, on_huggingface.tagger())
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

    def release_elsewhere(self, kept: list[BaseException]) -> None:
        def release() -> None:
            kept.clear()
            gc.collect()

        thread = threading.Thread(target=release)
        thread.start()
        thread.join()

    def test_ends_in_other_when_another_thread_collects_it(self, kept: list[BaseException]) -> None:
        assert present() != ("other", 0)
        self.release_elsewhere(kept)

        assert (present(), RingContents().steps) == (("other", 0), 3)

"""A copy of a tagger, as tuners and workers make them, is a new tagger of the same run."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from trainer_hooks.ring.process_ring import process_ring

if TYPE_CHECKING:
    from tests.keras import builders_keras as b

pytestmark = pytest.mark.keras_jax


def pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickled]


@pytest.fixture(autouse=True)
def builders(framework: str) -> None:
    """Keras is imported only where it is there; a class must be found by its name."""
    from tests.keras import builders_keras
    from trainer_hooks import PhaseTagger

    class TaggerOfAnExperiment(PhaseTagger):
        """A user's own: it takes and keeps what it likes."""

        def __init__(self, experiment: dict[str, Any], *, seed: int) -> None:
            super().__init__(run=f"{experiment['name']}-{seed}", logs=False)
            self.experiment, self.seed = experiment, seed

    TaggerOfAnExperiment.__qualname__ = "TaggerOfAnExperiment"
    globals()["b"] = builders_keras
    globals()["TaggerOfAnExperiment"] = TaggerOfAnExperiment


def own_tagger() -> Any:
    return globals()["TaggerOfAnExperiment"]({"name": "sweep"}, seed=3)


def steps() -> int:
    writer = process_ring().writer
    assert writer is not None
    return writer.steps


@pytest.mark.parametrize("copied", COPIES)
class TestACopyOfATagger:
    def test_of_a_class_of_the_users_own_keeps_what_it_was_made_with(self, copied: Any) -> None:
        one = copied(own_tagger())

        assert type(one) is globals()["TaggerOfAnExperiment"]
        assert (one.experiment, one.seed) == ({"name": "sweep"}, 3)

    def test_tags_beside_the_original(self, copied: Any) -> None:
        one = own_tagger()
        b.fit(b.small_model(), b.SlowBatches(0.0), one, steps=4, epochs=1)
        b.fit(b.small_model(), b.SlowBatches(0.0), copied(one), steps=4, epochs=1)
        b.fit(b.small_model(), b.SlowBatches(0.0), one, steps=4, epochs=1)

        assert steps() == 12
        writer = process_ring().writer
        assert writer is not None
        assert writer.facts.run == "sweep-3"

    def test_made_in_the_middle_of_a_training_leaves_that_tagged(self, copied: Any) -> None:
        import keras

        one = own_tagger()
        copying = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: copied(one))
        b.fit(b.small_model(), b.SlowBatches(0.0), one, copying, steps=4, epochs=2)

        assert steps() == 8

    def test_of_our_own_class_wishes_for_the_same(self, copied: Any) -> None:
        plain, told = copied(b.tagger()), copied(b.tagger(logs=True))
        histories = [
            b.fit(b.small_model(), b.SlowBatches(0.0), one, steps=4, epochs=1).history
            for one in (plain, told)
        ]

        assert ["input_wait_ratio" in history for history in histories] == [False, True]

"""A copy of a tagger, as tuners and workers make them, is a new tagger of the same run."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import trainer_hooks
from tests.keras.later import b
from tests.needs import in_make_truth

pytestmark = pytest.mark.keras_jax


def pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


@pytest.fixture(autouse=True)
def users_own(framework: str) -> Any:
    """A user's own tagger: it takes and keeps what it likes, and must be found by its name."""

    class TaggerOfAnExperiment(trainer_hooks.PhaseTagger):
        def __init__(self, experiment: dict[str, Any], *, seed: int) -> None:
            super().__init__(run=f"{experiment['name']}-{seed}", logs=False)
            self.experiment, self.seed = experiment, seed

    TaggerOfAnExperiment.__qualname__ = "TaggerOfAnExperiment"
    globals()["TaggerOfAnExperiment"] = TaggerOfAnExperiment
    return TaggerOfAnExperiment({"name": "sweep"}, seed=3)


def fit(*callbacks: Any, epochs: int = 1) -> Any:
    return b.fit(b.small_model(), b.SlowBatches(0.0), *callbacks, steps=4, epochs=epochs).history


@pytest.mark.parametrize(
    "copied", [copy.copy, pytest.param(copy.deepcopy, marks=in_make_truth), pickled]
)
class TestACopyOfATagger:
    def test_of_a_class_of_the_users_own_keeps_what_it_was_made_with(
        self, copied: Any, users_own: Any
    ) -> None:
        one = copied(users_own)

        assert type(one) is type(users_own)
        assert (one.experiment, one.seed) == ({"name": "sweep"}, 3)

    def test_tags_beside_the_original(self, copied: Any, users_own: Any) -> None:
        fit(users_own)
        fit(copied(users_own))
        fit(users_own)

        assert b.recorded_steps() == 12
        assert b.facts().run == "sweep-3"

    def test_made_in_the_middle_of_a_training_leaves_that_tagged(
        self, copied: Any, users_own: Any
    ) -> None:
        fit(users_own, b.Does(lambda _: copied(users_own), "on_epoch_begin"), epochs=2)

        assert b.recorded_steps() == 8

    def test_of_our_own_class_wishes_for_the_same(self, copied: Any) -> None:
        assert "input_wait_ratio" not in fit(copied(b.tagger()))
        assert "input_wait_ratio" in fit(copied(b.tagger(logs=True)))

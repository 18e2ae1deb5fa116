"""A copy of a tagger for Lightning or the Hugging Face Trainer, also of a user's own kind."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import RingSays
from tests.loops.builders_trainers import ADAPTERS, Adapter

pytestmark = pytest.mark.keras_torch


@pytest.fixture(params=ADAPTERS)
def on(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    adapter = ADAPTERS[request.param]()

    class TaggerOfAnExperiment(adapter.tagger_class):  # type: ignore[misc,name-defined]
        """A user's own: it takes and keeps what it likes."""

        def __init__(self, experiment: dict[str, Any], *, seed: int) -> None:
            super().__init__(run=f"{experiment['name']}-{seed}")
            self.experiment, self.seed = experiment, seed

    TaggerOfAnExperiment.__qualname__ = "TaggerOfAnExperiment"  # found by its name
    globals()["TaggerOfAnExperiment"] = TaggerOfAnExperiment
    yield adapter
    del globals()["TaggerOfAnExperiment"]


def own_tagger() -> Any:
    return globals()["TaggerOfAnExperiment"]({"name": "sweep"}, seed=3)


def pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickled]


@pytest.mark.parametrize("copied", COPIES)
class TestACopyOfATagger:
    def test_of_a_users_own_kind_is_of_that_kind(self, on: Adapter, copied: Any) -> None:
        one = copied(own_tagger())

        assert isinstance(one, globals()["TaggerOfAnExperiment"])
        assert type(one) is not type(on.tagger())
        assert (one.experiment, one.seed) == ({"name": "sweep"}, 3)

    def test_tags_after_the_original(self, on: Adapter, tmp_path: Path, copied: Any) -> None:
        one = own_tagger()
        on.train(tmp_path, one, epochs=1)
        on.train(tmp_path, copied(one), epochs=1)

        assert (RingSays().steps, RingSays().facts.run) == (12, "sweep-3")
        assert RingSays().present == "other"

"""What a tagger of either trainer leaves as it was where it can do nothing, and its copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import RingContents
from tests.loops.builders_trainers import Adapter
from tests.needs import in_make_truth
from trainer_hooks.ring import process_ring

pytestmark = pytest.mark.keras_torch


def pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


COPIES: list[Any] = [copy.copy, pytest.param(copy.deepcopy, marks=in_make_truth), pickled]


@pytest.fixture
def own_kind(on: Adapter) -> Iterator[Any]:
    """Makes a tagger of a user's own kind."""

    class TaggerOfAnExperiment(on.tagger):  # type: ignore[misc,name-defined]
        """It takes and keeps what it likes."""

        def __init__(self, experiment: dict[str, Any], *, seed: int) -> None:
            super().__init__(run=f"{experiment['name']}-{seed}")
            self.experiment, self.seed = experiment, seed

    TaggerOfAnExperiment.__qualname__ = "TaggerOfAnExperiment"  # found by its name
    globals()["TaggerOfAnExperiment"] = TaggerOfAnExperiment
    yield lambda: TaggerOfAnExperiment({"name": "sweep"}, seed=3)
    del globals()["TaggerOfAnExperiment"]


@pytest.mark.parametrize("copied", COPIES)
class TestACopyOfATagger:
    def test_is_a_callback_for_the_same_run(self, on: Adapter, copied: Any) -> None:
        one = copied(on.tagger(run="resnet", gpus=[1]))

        assert isinstance(one, on.b.Callback)
        assert one._run == "resnet"

    def test_of_a_users_own_kind_is_of_that_kind(
        self, on: Adapter, own_kind: Any, copied: Any
    ) -> None:
        one = copied(own_kind())

        assert isinstance(one, globals()["TaggerOfAnExperiment"])
        assert type(one) is not type(on.tagger())
        assert (one.experiment, one.seed) == ({"name": "sweep"}, 3)

    def test_tags_after_the_original(self, on: Adapter, own_kind: Any, copied: Any) -> None:
        one = own_kind()
        on.train(one, epochs=1)
        on.train(copied(one), epochs=1)

        assert (RingContents().steps, RingContents().facts.run) == (12, "sweep-3")
        assert RingContents().present == "other"


class TestATrainingWhoseRingCannotBeMade:
    def test_comes_to_the_same_results(
        self, on: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bare = on.train(validated=2)
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "file"))
        monkeypatch.setattr(process_ring._Slot, "ring", None)

        with pytest.warns(RuntimeWarning, match="records no phases"):
            hook = on.tagger()
        assert on.train(hook, validated=2) == bare

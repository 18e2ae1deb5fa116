"""A tagger that is given to another trainer than its own, or not as it should be."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from tests.keras.fake_daemon import FakeDaemon
from tests.loops.builders_loops import RingContents
from tests.loops.builders_trainers import ADAPTERS, Adapter

pytestmark = pytest.mark.keras_torch


def rings(folder: Path) -> int:
    return len(list(folder.rglob("*.ring")))


def of_the_other(on: Adapter) -> Any:
    """A tagger of the other trainer."""
    return ADAPTERS[on.other](on.folder).tagger()


def is_refused(on: Adapter, mistaken: Any) -> None:
    """With the line that is meant."""
    meant = rf"gpumon has another tagger.*from trainer_hooks\.{on.name} import PhaseTagger"
    with pytest.raises(AttributeError, match=meant):
        on.train(mistaken)


class TestATaggerOfAnotherTrainer:
    def test_is_refused_and_leaves_no_run(self, on: Adapter) -> None:
        mistaken = of_the_other(on)
        assert rings(on.folder) == 1
        is_refused(on, mistaken)

        assert rings(on.folder) == 0

    def test_and_was_refused_is_in_no_ones_way(self, on: Adapter) -> None:
        mistaken, meant = of_the_other(on), on.tagger(run="bert")
        is_refused(on, mistaken)
        on.train(meant, epochs=1)

        assert rings(on.folder) == 1
        assert (RingContents().steps, RingContents().facts.run) == (6, "bert")
        assert RingContents().facts.framework == on.name

    def test_is_refused_when_it_is_that_of_keras(
        self, on: Adapter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KERAS_BACKEND", "torch")
        from trainer_hooks import PhaseTagger

        is_refused(on, PhaseTagger())

    def test_lacks_other_attributes_as_anything_does(self, on: Adapter) -> None:
        hook = on.tagger()

        assert not hasattr(hook, "no_such_thing")
        assert type(copy.copy(hook)).__name__ == "PhaseTagger"
        with pytest.raises(AttributeError, match=r"'PhaseTagger' .* 'nothing'"):
            _ = hook.nothing

    def test_is_refused_by_keras_too(self, on: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KERAS_BACKEND", "torch")
        import keras

        with pytest.raises(AttributeError, match="trainer_hooks import PhaseTagger"):
            keras.callbacks.CallbackList([on.tagger()])


class TestATaggerListedAsItsClass:
    def test_is_refused_by_lightning_alone(self, on: Adapter) -> None:
        if on.name == "lightning":
            with pytest.raises(TypeError, match=r"write PhaseTagger\(\) instead"):
                on.train(on.tagger, epochs=1)
        else:  # the Hugging Face Trainer makes an instance itself
            on.train(on.tagger, epochs=1)
            assert (RingContents().steps, RingContents().facts.framework) == (6, on.name)


class TestATaggerWhoseGpuIsNotThere:
    @pytest.mark.parametrize(
        ("gpus", "expected"),
        [([99], "names GPU 99, but there is only GPU 0"), (None, "set GPUMON_GPUS=0"), (0, None)],
    )
    def test_is_recorded_once_as_the_training_begins(
        self, on: Adapter, recwarn: pytest.WarningsRecorder, gpus: Any, expected: str | None
    ) -> None:
        daemon = FakeDaemon(Path(os.environ["GPUMON_RUNTIME_DIR"]))
        daemon.document["simulated"] = True
        daemon.counts()

        on.train(on.tagger(gpus=gpus), epochs=1)

        settings = [str(one.message) for one in recwarn if "to gpumon" in str(one.message)]
        assert len(settings) == (0 if expected is None else 1)
        assert expected is None or expected in settings[0]


class TestATaggerThatWasNotSetUp:
    def test_tags_all_the_same(self, on: Adapter) -> None:
        class Forgetful(on.tagger):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                """It calls no other, as callbacks of these trainers need not."""

        on.train(Forgetful(), epochs=1)

        assert RingContents().steps == 6

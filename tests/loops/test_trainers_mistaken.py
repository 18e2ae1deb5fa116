"""A tagger in the wrong trainer, listed as its class, or for a GPU that does not exist."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.keras.fake_daemon import FakeDaemon
from tests.loops.builders_loops import RingContents
from tests.loops.builders_trainers import ADAPTERS, Adapter
from tests.ring_contents import count_rings

pytestmark = pytest.mark.keras_torch


def of_the_other(on: Adapter) -> Any:
    """A tagger of the other trainer."""
    return ADAPTERS[on.other](on.folder).tagger()


def is_refused(on: Adapter, mistaken: Any) -> None:
    """With the import that is right."""
    meant = rf"gpumon has another tagger.*from trainer_hooks\.{on.name} import PhaseTagger"
    with pytest.raises(AttributeError, match=meant):
        on.train(mistaken)


class TestATaggerOfAnotherTrainer:
    def test_is_refused_and_leaves_no_run(self, on: Adapter) -> None:
        mistaken = of_the_other(on)
        assert count_rings(on.folder) == 1
        is_refused(on, mistaken)
        assert count_rings(on.folder) == 0

        on.train(on.tagger(run="bert"), epochs=1)
        assert count_rings(on.folder) == 1
        assert (RingContents().steps, RingContents().facts.run) == (6, "bert")
        assert RingContents().facts.framework == on.name

    def test_is_refused_from_and_by_keras(
        self, on: Adapter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KERAS_BACKEND", "torch")
        import keras

        from trainer_hooks import PhaseTagger

        is_refused(on, PhaseTagger())
        with pytest.raises(AttributeError, match="trainer_hooks import PhaseTagger"):
            keras.callbacks.CallbackList([on.tagger()])

    def test_lacks_other_attributes_as_any_object(self, on: Adapter) -> None:
        hook = on.tagger()

        assert not hasattr(hook, "no_such_thing")
        with pytest.raises(AttributeError, match=r"'PhaseTagger' .* 'nothing'"):
            _ = hook.nothing


class TestATaggerListedAsItsClass:
    def test_is_refused_by_lightning_alone(self, on: Adapter) -> None:
        if on.name == "lightning":
            with pytest.raises(TypeError, match=r"write PhaseTagger\(\) instead"):
                on.train(on.tagger, epochs=1)
        else:  # the Hugging Face Trainer makes an instance itself
            on.train(on.tagger, epochs=1)
            assert (RingContents().steps, RingContents().facts.framework) == (6, on.name)


class TestATaggerForAGpuThatDoesNotExist:
    @pytest.mark.parametrize(
        ("gpus", "expected"),
        [([99], "names GPU 99, but there is only GPU 0"), (0, None)],
    )
    def test_warns_once_as_the_run_begins(
        self, on: Adapter, recwarn: pytest.WarningsRecorder, gpus: Any, expected: str | None
    ) -> None:
        daemon = FakeDaemon(Path(os.environ["GPUMON_RUNTIME_DIR"]))
        daemon.document["simulated"] = True
        daemon.counts()

        on.train(on.tagger(gpus=gpus), epochs=1)

        warned = [str(one.message) for one in recwarn if "to gpumon" in str(one.message)]
        assert len(warned) == (0 if expected is None else 1)
        assert expected is None or expected in warned[0]


class TestATaggerWhoseInitWasNotCalled:
    def test_tags_nevertheless(self, on: Adapter) -> None:
        class Forgetful(on.tagger):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                """Callbacks of these trainers need not call another."""

        on.train(Forgetful(), epochs=1)

        assert RingContents().steps == 6

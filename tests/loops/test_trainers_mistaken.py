"""A tagger that is given to another trainer than its own."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.keras.fake_daemon import FakeDaemon
from tests.loops.builders_loops import RingSays, own_ring
from tests.loops.builders_trainers import ADAPTERS
from tests.patience import PATIENCE_S, until, wait_until

pytestmark = pytest.mark.keras_torch

MEANT = {"lightning": "trainer_hooks.lightning", "huggingface": "trainer_hooks.huggingface"}
OTHER = {"lightning": "huggingface", "huggingface": "lightning"}


def rings(folder: Path) -> list[Path]:
    return list(folder.rglob("*.ring"))


class TestATaggerOfAnotherTrainer:
    @pytest.mark.parametrize("name", ADAPTERS)
    def test_is_refused_with_the_line_that_is_meant(self, tmp_path: Path, name: str) -> None:
        mistaken = ADAPTERS[OTHER[name]]().tagger()

        with pytest.raises(AttributeError, match=f"from {MEANT[name]} import PhaseTagger"):
            ADAPTERS[name]().train(tmp_path, mistaken)

    @pytest.mark.parametrize("name", ADAPTERS)
    def test_leaves_no_run_when_it_is_refused(self, tmp_path: Path, name: str) -> None:
        mistaken = ADAPTERS[OTHER[name]]().tagger()
        assert len(rings(tmp_path)) == 1
        with pytest.raises(AttributeError, match="gpumon has another tagger"):
            ADAPTERS[name]().train(tmp_path, mistaken)

        assert rings(tmp_path) == []

    @pytest.mark.parametrize("name", ADAPTERS)
    def test_and_was_refused_is_in_nobodys_way(self, tmp_path: Path, name: str) -> None:
        mistaken, meant = (
            ADAPTERS[OTHER[name]]().tagger(),
            ADAPTERS[name]().tagger_class(run="bert"),
        )
        with pytest.raises(AttributeError, match="gpumon has another tagger"):
            ADAPTERS[name]().train(tmp_path, mistaken)
        ADAPTERS[name]().train(tmp_path, meant, epochs=1)

        assert len(rings(tmp_path)) == 1
        assert (RingSays().steps, RingSays().facts.run) == (6, "bert")
        assert RingSays().facts.framework == name

    @pytest.mark.parametrize("name", ADAPTERS)
    def test_is_refused_when_it_is_that_of_keras(
        self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KERAS_BACKEND", "torch")
        from trainer_hooks import PhaseTagger

        with pytest.raises(AttributeError, match=f"from {MEANT[name]} import PhaseTagger"):
            ADAPTERS[name]().train(tmp_path, PhaseTagger())

    @pytest.mark.parametrize("name", ADAPTERS)
    def test_lacks_other_attributes_as_anything_does(self, name: str) -> None:
        hook: Any = ADAPTERS[name]().tagger()

        assert not hasattr(hook, "no_such_thing")
        assert type(copy.copy(hook)).__name__ == "PhaseTagger"
        with pytest.raises(AttributeError, match="'PhaseTagger' object has no attribute 'nothing'"):
            _ = hook.nothing

    @pytest.mark.parametrize("name", ADAPTERS)
    def test_is_refused_by_keras_too(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KERAS_BACKEND", "torch")
        import keras

        with pytest.raises(AttributeError, match="from trainer_hooks import PhaseTagger"):
            keras.callbacks.CallbackList([ADAPTERS[name]().tagger()])


class TestATaggerThatIsGivenAsItsClass:
    @pytest.mark.parametrize("name", ADAPTERS)
    def test_tags_as_an_instance_does(
        self, tmp_path: Path, name: str, recwarn: pytest.WarningsRecorder
    ) -> None:
        adapter = ADAPTERS[name]()

        adapter.train(tmp_path, adapter.tagger_class, epochs=1)

        assert (RingSays().steps, RingSays().facts.framework) == (6, name)
        said = [str(one.message) for one in recwarn if "with brackets" in str(one.message)]
        # The Trainer of Hugging Face takes classes, and makes them itself.
        assert len(said) == (1 if name == "lightning" else 0)

    def test_keeps_no_model_of_lightning(self, tmp_path: Path) -> None:
        adapter = ADAPTERS["lightning"]()

        with pytest.warns(RuntimeWarning, match=r"write PhaseTagger\(\), with brackets"):
            adapter.train(tmp_path, adapter.tagger_class, epochs=1)

        assert {"log", "log_dict"} & vars(adapter.tagger_class).keys() == set()


class TestATaggerWhoseGpuIsNotThere:
    @pytest.mark.parametrize("name", ADAPTERS)
    @pytest.mark.parametrize(
        ("gpus", "expected"),
        [([99], "names GPU 99, and there is GPU 0 alone"), (None, "set GPUMON_GPUS=0"), (0, None)],
    )
    def test_is_told_once_as_the_training_begins(
        self,
        tmp_path: Path,
        recwarn: pytest.WarningsRecorder,
        name: str,
        gpus: Any,
        expected: str | None,
    ) -> None:
        daemon = FakeDaemon(Path(os.environ["GPUMON_RUNTIME_DIR"]))
        daemon.document["simulated"] = True
        daemon.counts()

        ADAPTERS[name]().train(tmp_path, ADAPTERS[name]().tagger_class(gpus=gpus), epochs=1)

        said = [str(one.message) for one in recwarn if "to gpumon" in str(one.message)]
        assert len(said) == (0 if expected is None else 1)
        assert expected is None or expected in said[0]


class TestATaggerThatWasNotSetUp:
    @pytest.mark.parametrize("name", ADAPTERS)
    def test_tags_all_the_same(self, tmp_path: Path, name: str) -> None:
        adapter = ADAPTERS[name]()

        class Forgetful(adapter.tagger_class):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                """It calls no other, as callbacks of these trainers need not."""

        adapter.train(tmp_path, Forgetful(), epochs=1)

        assert RingSays().steps == 6


class TestTheReport:
    def test_forgets_the_run_of_a_tagger_that_is_refused(self, tmp_path: Path) -> None:
        with (
            RunningDaemon(tmp_path, "--source", "simulated:input-bound") as daemon,
            own_ring(Path(daemon.environ["GPUMON_RUNTIME_DIR"])),
        ):
            mistaken = ADAPTERS["lightning"]().tagger()
            wait_until(lambda: len(daemon.report()["runs"]) == 1)
            with pytest.raises(AttributeError, match="gpumon has another tagger"):
                ADAPTERS["huggingface"]().train(tmp_path, mistaken)
            assert until(lambda: daemon.report()["runs"] == [], PATIENCE_S)

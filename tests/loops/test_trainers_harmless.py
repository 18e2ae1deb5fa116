"""What a tagger leaves as it was: results, the user's profiler, itself when copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import RingContents
from tests.loops.builders_trainers import Adapter, OnHuggingFace, OnLightning
from trainer_hooks.ring import process_ring

pytestmark = pytest.mark.keras_torch


def lightning_outcome(on: OnLightning, *hooks: Any, **settings: Any) -> tuple[Any, ...]:
    """Losses, weights, a validation, and the kinds of callbacks that a checkpoint holds."""
    builders = on.builders
    model = builders.model()
    saved = builders.pl.callbacks.ModelCheckpoint(dirpath=on.folder, save_last=True)
    trainer = builders.trainer(on.folder, *hooks, saved, **settings)
    trainer.fit(model, builders.loader(9), builders.loader(2))
    validated = float(trainer.callback_metrics["validated"])
    path = saved.last_model_path
    checkpoint = builders.torch.load(path, weights_only=False)
    kinds = {key.partition("{")[0] for key in checkpoint["callbacks"]}
    return model.losses, builders.weights(model), validated, kinds


def huggingface_outcome(on: OnHuggingFace, *hooks: Any, **settings: Any) -> tuple[Any, ...]:
    trainer = on.builders.trainer(on.folder, *hooks, batches=6, **settings)
    trainer.train()
    predicted = trainer.predict(trainer.eval_dataset)
    return on.builders.outcome(trainer), predicted.metrics["test_loss"]


class TestResults:
    def test_are_the_same_in_lightning(self, on_lightning: OnLightning) -> None:
        settings = {"accumulate_grad_batches": 2, "val_check_interval": 3}
        bare = lightning_outcome(on_lightning, **settings)

        assert lightning_outcome(on_lightning, on_lightning.tagger(), **settings) == bare
        assert bare[3] == {"ModelCheckpoint"}

    def test_are_the_same_in_hugging_faces_trainer(self, on_huggingface: OnHuggingFace) -> None:
        settings = {"gradient_accumulation_steps": 2, "eval_strategy": "epoch"}
        bare = huggingface_outcome(on_huggingface, **settings)

        assert huggingface_outcome(on_huggingface, on_huggingface.tagger(), **settings) == bare

    def test_are_the_same_without_a_ring(
        self, on: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bare = on.train(validated=2)
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "file"))
        monkeypatch.setattr(process_ring._Slot, "ring", None)

        with pytest.warns(RuntimeWarning, match="records no phases"):
            hook = on.tagger()
        assert on.train(hook, validated=2) == bare


class TestAProfilerOfTheUser:
    def listening(self, pl: Any) -> Any:
        class Listening(pl.profilers.Profiler):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.lines: list[str] = []

            def start(self, action_name: str) -> None:
                self.lines.append(f"+{action_name}")

            def stop(self, action_name: str) -> None:
                self.lines.append(f"-{action_name}")

        return Listening()

    def test_receives_the_same_actions_in_the_same_order(self, on_lightning: OnLightning) -> None:
        builders, received = on_lightning.builders, []
        for hooks in ([], [builders.tagger()]):
            profiler = self.listening(builders.pl)
            trainer = builders.trainer(on_lightning.folder, *hooks, profiler=profiler)
            trainer.fit(builders.model(), builders.loader(3), builders.loader(2))
            received.append([line for line in profiler.lines if "PhaseTagger" not in line])

        assert received[0] == received[1]
        assert any("run_training_batch" in line for line in received[0])

    def test_appears_as_the_trainers(self, on_lightning: OnLightning, tmp_path: Path) -> None:
        builders, seen = on_lightning.builders, []

        def ask(_: Any, trainer: Any, *__: object) -> None:
            trainer.profiler.note = "mine"
            is_simple = isinstance(trainer.profiler, builders.pl.profilers.SimpleProfiler)
            seen.append((is_simple, trainer.profiler.note))

        profiler = builders.pl.profilers.SimpleProfiler(dirpath=tmp_path, filename="report")
        asking = builders.callback(on_train_batch_end=ask)
        trainer = builders.trainer(
            tmp_path, builders.tagger(), asking, profiler=profiler, max_epochs=1
        )
        trainer.fit(builders.model(), builders.loader(2))

        assert seen == [(True, "mine"), (True, "mine")]
        assert profiler.note == "mine"
        assert "run_training_batch" in (tmp_path / "fit-report.txt").read_text()

    def test_replacement_during_training_stays(self, on_lightning: OnLightning) -> None:
        builders = on_lightning.builders
        other = self.listening(builders.pl)

        def replace(_: Any, trainer: Any, *__: object) -> None:
            trainer.profiler = other

        replacing = builders.callback(on_train_epoch_start=replace)
        trainer = builders.trainer(on_lightning.folder, builders.tagger(), replacing, max_epochs=1)
        trainer.fit(builders.model(), builders.loader(2))

        assert trainer.profiler is other


def pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


@pytest.fixture
def own_kind(on: Adapter) -> Iterator[Any]:
    """Makes a tagger of a user's own subclass."""

    class TaggerOfAnExperiment(on.tagger):  # type: ignore[misc,name-defined]
        def __init__(self, experiment: dict[str, Any], *, seed: int) -> None:
            super().__init__(run=f"{experiment['name']}-{seed}")
            self.experiment, self.seed = experiment, seed

    TaggerOfAnExperiment.__qualname__ = "TaggerOfAnExperiment"  # pickle finds it by its name
    globals()["TaggerOfAnExperiment"] = TaggerOfAnExperiment
    yield lambda: TaggerOfAnExperiment({"name": "sweep"}, seed=3)
    del globals()["TaggerOfAnExperiment"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
class TestACopyOfATagger:
    def test_is_of_the_users_own_class_and_tags_after_the_original(
        self, on: Adapter, own_kind: Any, copied: Any
    ) -> None:
        one = own_kind()
        on.train(one, epochs=1)
        other = copied(one)
        on.train(other, epochs=1)

        assert isinstance(other, on.builders.Callback)
        assert isinstance(other, globals()["TaggerOfAnExperiment"])
        assert (other.experiment, other.seed) == ({"name": "sweep"}, 3)
        assert (RingContents().steps, RingContents().facts.run) == (12, "sweep-3")
        assert RingContents().present == "other"

"""Specification of what PhaseTagger leaves as it was in Lightning."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import Waits
from trainer_hooks.ring import process_ring

pytestmark = pytest.mark.keras_torch


def tagger(**said: Any) -> Any:
    from trainer_hooks.lightning import PhaseTagger

    return PhaseTagger(**said)


def outcome(b: Any, pl: Any, folder: Path, *hooks: Any, **said: Any) -> tuple[Any, ...]:
    """Losses, weights and what a checkpoint holds after a short training."""
    import torch

    model = b.model(pl, Waits())
    saved = pl.callbacks.ModelCheckpoint(dirpath=folder, save_last=True)
    trainer = b.trainer(pl, folder, *hooks, saved, **said)
    trainer.fit(model, b.loader(9), b.loader(2))
    checkpoint = torch.load(folder / "last.ckpt", weights_only=False)
    weights = [weight.tolist() for weight in model.parameters()]
    return (
        model.losses,
        weights,
        float(trainer.callback_metrics["validated"]),
        set(checkpoint["callbacks"]),
    )


class TestResults:
    @pytest.mark.parametrize(
        "said",
        [{}, {"accumulate_grad_batches": 2}, {"gradient_clip_val": 0.5}, {"val_check_interval": 3}],
        ids=str,
    )
    def test_are_the_same_with_and_without(
        self, b: Any, pl: Any, tmp_path: Path, said: dict[str, Any]
    ) -> None:
        bare = outcome(b, pl, tmp_path / "bare", **said)
        tagged = outcome(b, pl, tmp_path / "tagged", tagger(), **said)

        assert tagged[:3] == bare[:3]
        assert {key.partition("{")[0] for key in tagged[3]} == {"ModelCheckpoint"}

    def test_are_the_same_where_no_ring_can_be_made(
        self, b: Any, pl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bare = outcome(b, pl, tmp_path / "bare")
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "file"))
        monkeypatch.setattr(process_ring._Slot, "ring", None)

        with pytest.warns(RuntimeWarning, match="records no phases"):
            hook = tagger()
        assert outcome(b, pl, tmp_path / "tagged", hook)[:3] == bare[:3]


class TestAProfilerOfTheUser:
    def listening(self, pl: Any) -> Any:
        class Listening(pl.profilers.Profiler):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.heard: list[str] = []

            def start(self, action_name: str) -> None:
                self.heard.append(f"+{action_name}")

            def stop(self, action_name: str) -> None:
                self.heard.append(f"-{action_name}")

        return Listening()

    def test_hears_of_the_same_actions_in_the_same_order(
        self, b: Any, pl: Any, tmp_path: Path
    ) -> None:
        heard = []
        for hooks in ([], [tagger()]):
            profiler = self.listening(pl)
            trainer = b.trainer(pl, tmp_path, *hooks, profiler=profiler)
            trainer.fit(b.model(pl, Waits()), b.loader(3), b.loader(2))
            heard.append([line for line in profiler.heard if "PhaseTagger" not in line])

        assert heard[0] == heard[1]
        assert any("run_training_batch" in line for line in heard[0])

    def test_is_what_the_trainer_seems_to_have(self, b: Any, pl: Any, tmp_path: Path) -> None:
        seen = []

        class Asking(pl.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, trainer: Any, *_: object) -> None:
                profiler = trainer.profiler
                profiler.note = "mine"
                seen.append((isinstance(profiler, pl.profilers.SimpleProfiler), profiler.note))

        profiler = pl.profilers.SimpleProfiler(dirpath=tmp_path, filename="report")
        trainer = b.trainer(pl, tmp_path, tagger(), Asking(), profiler=profiler, max_epochs=1)
        trainer.fit(b.model(pl, Waits()), b.loader(2))

        assert seen == [(True, "mine"), (True, "mine")]
        assert profiler.note == "mine"
        assert "run_training_batch" in (tmp_path / "fit-report.txt").read_text()

    def test_that_was_put_in_during_the_training_stays(
        self, b: Any, pl: Any, tmp_path: Path
    ) -> None:
        other = self.listening(pl)

        class Replacing(pl.Callback):  # type: ignore[misc]
            def on_train_epoch_start(self, trainer: Any, *_: object) -> None:
                trainer.profiler = other

        trainer = b.trainer(pl, tmp_path, tagger(), Replacing(), max_epochs=1)
        trainer.fit(b.model(pl, Waits()), b.loader(2))

        assert trainer.profiler is other


class TestTroubleOfOurOwn:
    def test_ends_the_tagging_with_one_warning_and_not_the_training(
        self, b: Any, pl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from trainer_hooks.trainers.lightning_phases import LightningPhases

        bare = outcome(b, pl, tmp_path / "bare")

        def fail(*_: object) -> None:
            raise RuntimeError("a mistake")

        monkeypatch.setattr(LightningPhases, "end", fail)
        with pytest.warns(RuntimeWarning, match="no more phases") as caught:
            assert outcome(b, pl, tmp_path / "tagged", tagger())[:3] == bare[:3]
        assert len([w for w in caught if "gpumon" in str(w.message)]) == 1


class TestTheCallback:
    def test_is_one_of_the_package_that_is_in_use(self, pl: Any) -> None:
        hook = tagger()

        assert isinstance(hook, pl.Callback)
        assert type(hook).__name__ == "PhaseTagger"
        assert hook.state_dict() == {}

    @pytest.mark.parametrize("copied", [copy.copy, lambda it: pickle.loads(pickle.dumps(it))])
    def test_can_be_copied(self, pl: Any, copied: Any) -> None:
        hook = copied(tagger(run="resnet", gpus=[1]))

        assert isinstance(hook, pl.Callback)
        assert hook._run == "resnet"

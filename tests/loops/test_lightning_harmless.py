"""Specification of what PhaseTagger leaves as it was in Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.needs import in_make_truth

pytestmark = pytest.mark.keras_torch


def outcome(b: Any, folder: Path, *hooks: Any, **settings: Any) -> tuple[Any, ...]:
    """Losses, weights, a validation, and the kinds of callbacks that a checkpoint holds."""
    model = b.model()
    saved = b.pl.callbacks.ModelCheckpoint(dirpath=folder, save_last=True)
    trainer = b.trainer(folder, *hooks, saved, **settings)
    trainer.fit(model, b.loader(9), b.loader(2))
    validated = float(trainer.callback_metrics["validated"])
    checkpoint = b.torch.load(folder / "last.ckpt", weights_only=False)
    held = {key.partition("{")[0] for key in checkpoint["callbacks"]}
    return model.losses, b.weights(model), validated, held


class TestResults:
    @pytest.mark.parametrize(
        "settings",
        [
            {"accumulate_grad_batches": 2},
            pytest.param({"gradient_clip_val": 0.5}, marks=in_make_truth),
            {"val_check_interval": 3},
        ],
        ids=str,
    )
    def test_are_the_same_with_and_without(
        self, b: Any, tmp_path: Path, settings: dict[str, Any]
    ) -> None:
        bare = outcome(b, tmp_path / "bare", **settings)

        assert outcome(b, tmp_path / "tagged", b.tagger(), **settings) == bare
        assert bare[3] == {"ModelCheckpoint"}

    def test_are_the_same_where_we_make_a_mistake_of_which_one_warning_records(
        self, b: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from trainer_hooks.trainers.lightning_phases import LightningPhases

        def fail(*_: object) -> None:
            raise RuntimeError("a mistake")

        bare = outcome(b, tmp_path / "bare")
        monkeypatch.setattr(LightningPhases, "end", fail)

        with pytest.warns(RuntimeWarning, match="stopped tagging") as caught:
            assert outcome(b, tmp_path / "tagged", b.tagger()) == bare
        assert len([w for w in caught if "gpumon" in str(w.message)]) == 1


class TestAProfilerOfTheUser:
    def listening(self, pl: Any) -> Any:
        class Listening(pl.profilers.Profiler):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.handler: list[str] = []

            def start(self, action_name: str) -> None:
                self.handler.append(f"+{action_name}")

            def stop(self, action_name: str) -> None:
                self.handler.append(f"-{action_name}")

        return Listening()

    def test_receives_of_the_same_actions_in_the_same_order(self, b: Any, tmp_path: Path) -> None:
        handler = []
        for hooks in ([], [b.tagger()]):
            profiler = self.listening(b.pl)
            trainer = b.trainer(tmp_path, *hooks, profiler=profiler)
            trainer.fit(b.model(), b.loader(3), b.loader(2))
            handler.append([line for line in profiler.handler if "PhaseTagger" not in line])

        assert handler[0] == handler[1]
        assert any("run_training_batch" in line for line in handler[0])

    def test_is_what_the_trainer_seems_to_have(self, b: Any, tmp_path: Path) -> None:
        seen = []

        def ask(_: Any, trainer: Any, *__: object) -> None:
            trainer.profiler.note = "mine"
            is_simple = isinstance(trainer.profiler, b.pl.profilers.SimpleProfiler)
            seen.append((is_simple, trainer.profiler.note))

        profiler = b.pl.profilers.SimpleProfiler(dirpath=tmp_path, filename="report")
        asking = b.callback(on_train_batch_end=ask)
        trainer = b.trainer(tmp_path, b.tagger(), asking, profiler=profiler, max_epochs=1)
        trainer.fit(b.model(), b.loader(2))

        assert seen == [(True, "mine"), (True, "mine")]
        assert profiler.note == "mine"
        assert "run_training_batch" in (tmp_path / "fit-report.txt").read_text()

    def test_that_was_put_in_during_the_training_stays(self, b: Any, tmp_path: Path) -> None:
        other = self.listening(b.pl)

        def replace(_: Any, trainer: Any, *__: object) -> None:
            trainer.profiler = other

        replacing = b.callback(on_train_epoch_start=replace)
        trainer = b.trainer(tmp_path, b.tagger(), replacing, max_epochs=1)
        trainer.fit(b.model(), b.loader(2))

        assert trainer.profiler is other


def test_the_tagger_is_a_callback_of_the_package_that_is_in_use(b: Any) -> None:
    hook = b.tagger()

    assert isinstance(hook, b.pl.Callback)
    assert type(hook).__name__ == "PhaseTagger"
    assert hook.state_dict() == {}

"""The phases of Lightning's actions, without Lightning."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from trainer_hooks.trainers.lightning_tagging import Action, LightningPhases, action_named

VAL_BEGIN = "[LightningModule]Net.on_validation_model_eval"
VAL_END = "[Strategy]SingleDeviceStrategy.on_validation_end"


class FakeWriter:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.present = (PHASE_NUMBER[TrainingPhase.OTHER], 0)
        self.entered: list[str] = []

    def enter(self, phase: int, mode: int = 0) -> None:
        self.present = (phase, mode)
        self.entered.append(PHASES[phase].value + ("", " v", " p")[mode])


def entered(settings: str, *, after: str = "", moves_batches: bool = False) -> Any:
    """The phases that follow on actions: ``+`` begins one, ``-`` ends one."""
    writer: Any = FakeWriter()
    phases = LightningPhases(writer, moves_batches=moves_batches)
    for actions in filter(None, (after, settings)):
        if actions is settings and after:
            writer.entered.clear()
        for word in actions.split():
            action = Action[word.strip("+-")]
            if not word.startswith("-"):
                phases.begin(action)
            if not word.startswith("+"):
                phases.end(action)
    return writer.entered


def kind_of_callback(key: str, hook: str) -> Action | None:
    return Action.CHECKPOINT if key.startswith("ModelCheckpoint") else Action.CALLBACK


class TestAnAction:
    @pytest.mark.parametrize(
        ("name", "action"),
        [
            ("run_training_epoch", Action.EPOCH),
            ("run_training_batch", Action.STEP),
            ("[_TrainingEpochLoop].train_dataloader_next", Action.FETCH),
            ("[_EvaluationLoop].val_next", Action.FETCH),
            ("[_PredictionLoop].predict_next", Action.FETCH),
            ("[Strategy]DDPStrategy.batch_to_device", Action.TRANSFER),
            ("save_checkpoint", Action.CHECKPOINT),
            (VAL_BEGIN, Action.VALIDATION_BEGINS),
            ("[LightningModule]Net.on_validation_model_zero_grad", Action.VALIDATION_BEGINS),
            ("[LightningModule]Net.on_test_model_eval", Action.VALIDATION_BEGINS),
            ("[LightningModule]Net.on_predict_model_eval", Action.PREDICTION_BEGINS),
            (VAL_END, Action.EVALUATION_ENDS),
            ("[LightningModule]Net.on_train_epoch_end", Action.CALLBACK),
            ("[Callback]Mine.on_before_optimizer_step", Action.CALLBACK),
            (
                "[Callback]ModelCheckpoint{'monitor': 'a.b'}.on_train_epoch_end",
                Action.CHECKPOINT,
            ),
            ("[Callback]ModelCheckpoint{}.on_train_batch_end", Action.CHECKPOINT),
        ],
    )
    def test_is_known_by_its_name(self, name: str, action: Action) -> None:
        assert action_named(name, kind_of_callback) is action

    @pytest.mark.parametrize(
        "name",
        [
            "my own block",
            "[LightningModule]Net.training_step",
            "[LightningModule]Net.optimizer_step",
            "[LightningModule]Net.on_train_batch_end",
            "[LightningDataModule]Data.setup",
            "[Callback]Mine.on_train_batch_end",  # among callbacks anyway
            "[Callback]Mine.setup",
            "[Callback]Mine.on_save_checkpoint",  # part of a checkpoint
        ],
    )
    def test_without_a_phase_is_skipped(self, name: str) -> None:
        assert action_named(name, kind_of_callback) is None


class TestInATraining:
    @pytest.mark.parametrize(
        ("settings", "recorded"),
        [
            pytest.param("FETCH STEP", ["input_wait", "callbacks", "train_step", "callbacks"],
                         id="a step waits, computes and leaves the rest to callbacks"),
            pytest.param("+STEP FETCH CALLBACK",
                         ["train_step", "input_wait", "train_step", "callbacks", "train_step"],
                         id="a step may fetch and call back in its middle"),
            pytest.param("+STEP +CALLBACK -EPOCH", ["train_step", "callbacks", "between_epochs"],
                         id="a step that raised inside is over with its epoch"),
            pytest.param("VALIDATION_BEGINS FETCH TRANSFER CALLBACK CHECKPOINT EVALUATION_ENDS",
                         ["validation v", "input_wait v", "validation v",
                          "checkpoint", "validation v", "callbacks"],
                         id="a validation separates only the wait and checkpoints"),
            pytest.param("VALIDATION_BEGINS VALIDATION_BEGINS EVALUATION_ENDS",
                         ["validation v", "callbacks"],
                         id="a validation begins once"),
            pytest.param("-EPOCH CALLBACK", ["between_epochs", "callbacks", "between_epochs"],
                         id="after an epoch is between epochs"),
            pytest.param("-FETCH", [], id="the end of what never began changes nothing"),
        ],
    )  # fmt: skip
    def test_phases_follow_each_other(self, settings: str, recorded: list[str]) -> None:
        assert entered(settings, after="+EPOCH STEP") == recorded

    def test_a_step_moves_its_batch_where_there_is_another_device(self) -> None:
        recorded = ["input_wait", "host_to_device", "callbacks", "train_step", "callbacks"]

        assert entered("FETCH TRANSFER STEP", after="+EPOCH STEP", moves_batches=True) == recorded


@pytest.mark.parametrize(
    ("settings", "recorded"),
    [
        ("VALIDATION_BEGINS EVALUATION_ENDS CALLBACK", ["validation v", "start_up"]),
        ("PREDICTION_BEGINS FETCH", ["predict p", "input_wait p", "predict p"]),
    ],
    ids=["a validation before the first epoch", "of no known result"],
)
def test_an_evaluation_outside_of_an_epoch_comes_after_start_up(
    settings: str, recorded: list[str]
) -> None:
    assert entered(settings) == ["start_up", *recorded]

"""Specification of what Lightning's actions say about phases, without Lightning."""

from __future__ import annotations

import pytest

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from trainer_hooks.trainers.lightning_phases import Action, LightningPhases, action_named

VAL_BEGIN = "[LightningModule]Net.on_validation_model_eval"
VAL_END = "[Strategy]SingleDeviceStrategy.on_validation_end"


class NotedPen:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.present = (PHASE_NUMBER[TrainingPhase.OTHER], 0)
        self.entered: list[str] = []

    def enter(self, phase: int, mode: int = 0) -> None:
        self.present = (phase, mode)
        self.entered.append(PHASES[phase].value + ("", " v", " p")[mode])


@pytest.fixture
def pen() -> NotedPen:
    return NotedPen()


def during(phases: LightningPhases, *actions: Action) -> None:
    """Actions that begin inside each other, and end in the opposite order."""
    for action in actions:
        phases.begin(action)
    for action in reversed(actions):
        phases.end(action)


def training(pen: NotedPen, *, moves_batches: bool = False) -> LightningPhases:
    """In an epoch, after a step."""
    phases = LightningPhases(pen, moves_batches=moves_batches)
    phases.begin(Action.EPOCH)
    during(phases, Action.STEP)
    pen.entered.clear()
    return phases


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
    def test_that_changes_no_phase_is_passed_by(self, name: str) -> None:
        assert action_named(name, kind_of_callback) is None


class TestATrainingStep:
    def test_waits_computes_and_leaves_the_rest_to_callbacks(self, pen: NotedPen) -> None:
        phases = training(pen)
        during(phases, Action.FETCH)
        during(phases, Action.STEP)

        assert pen.entered == ["input_wait", "callbacks", "train_step", "callbacks"]

    def test_moves_its_batch_where_there_is_another_device(self, pen: NotedPen) -> None:
        phases = training(pen, moves_batches=True)
        during(phases, Action.FETCH)
        during(phases, Action.TRANSFER)
        during(phases, Action.STEP)

        assert pen.entered == [
            "input_wait", "host_to_device", "callbacks", "train_step", "callbacks",
        ]  # fmt: skip

    def test_may_fetch_and_call_back_in_its_middle(self, pen: NotedPen) -> None:
        phases = training(pen)
        phases.begin(Action.STEP)
        during(phases, Action.FETCH)
        during(phases, Action.CALLBACK)

        assert pen.entered == [
            "train_step", "input_wait", "train_step", "callbacks", "train_step",
        ]  # fmt: skip

    def test_that_raised_inside_is_over_with_its_epoch(self, pen: NotedPen) -> None:
        phases = training(pen)
        phases.begin(Action.STEP)
        phases.begin(Action.CALLBACK)
        phases.end(Action.EPOCH)

        assert pen.entered[-1] == "between_epochs"


class TestAnEvaluation:
    def test_in_training_tells_only_the_wait_and_checkpoints_apart(self, pen: NotedPen) -> None:
        phases = training(pen)
        during(phases, Action.VALIDATION_BEGINS)
        during(phases, Action.FETCH)
        during(phases, Action.TRANSFER)
        during(phases, Action.CALLBACK)
        during(phases, Action.CHECKPOINT)
        during(phases, Action.EVALUATION_ENDS)

        assert pen.entered == [
            "validation v", "input_wait v", "validation v",
            "checkpoint", "validation v", "callbacks",
        ]  # fmt: skip

    def test_is_begun_once_however_often_that_is_said(self, pen: NotedPen) -> None:
        phases = training(pen)
        during(phases, Action.VALIDATION_BEGINS)
        during(phases, Action.VALIDATION_BEGINS)
        during(phases, Action.EVALUATION_ENDS)

        assert pen.entered == ["validation v", "callbacks"]

    def test_before_the_first_epoch_is_followed_by_start_up(self, pen: NotedPen) -> None:
        phases = LightningPhases(pen)
        during(phases, Action.VALIDATION_BEGINS)
        during(phases, Action.EVALUATION_ENDS)
        during(phases, Action.CALLBACK)

        assert pen.entered == ["start_up", "validation v", "start_up"]

    def test_of_no_known_result_is_prediction(self, pen: NotedPen) -> None:
        phases = LightningPhases(pen)
        during(phases, Action.PREDICTION_BEGINS)
        during(phases, Action.FETCH)

        assert pen.entered[1:] == ["predict p", "input_wait p", "predict p"]


class TestTheEnd:
    def test_of_an_epoch_is_between_epochs(self, pen: NotedPen) -> None:
        phases = training(pen)
        phases.end(Action.EPOCH)
        during(phases, Action.CALLBACK)

        assert pen.entered == ["between_epochs", "callbacks", "between_epochs"]

    def test_of_something_that_never_began_says_nothing(self, pen: NotedPen) -> None:
        phases = training(pen)
        phases.end(Action.FETCH)

        assert pen.entered == []

"""Which phase follows which while Keras trains."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from gpumon.core.ring_format.format import MODE_SHIFT
from trainer_hooks.taps.phase_machine import PhaseMachine

START_UP = PHASE_NUMBER[TrainingPhase.START_UP]


class Notes:
    """A writer that keeps what it received, as text."""

    def __init__(self) -> None:
        self.present = (START_UP, 0)
        self.lines: list[str] = []

    @property
    def span(self) -> int:
        phase, mode = self.present
        return phase | mode << MODE_SHIFT

    def enter(self, phase: int, mode: int = 0, *, is_done: bool = False) -> None:
        self.present = (phase, mode)
        self.lines.append(PHASES[phase].value + ("", " (validation)", " (predict)")[mode])

    def count(self, steps: int, samples: int) -> None:
        self.lines.append(f"step {steps}x{samples}")

    def epoch(self, epoch: int) -> None:
        self.lines.append(f"epoch {epoch}")

    def spent_ns(self, phase: int) -> int:
        """Each entry of a phase lasts one nanosecond here."""
        return sum(line.startswith(PHASES[phase].value) for line in self.lines)


def train_one_step(machine: PhaseMachine) -> None:
    machine.fetch_begin()
    machine.fetch_end()
    machine.dispatched(1, 32)


def fetch_aside(machine: PhaseMachine) -> None:
    before = machine.interrupt(1)
    machine.fetch_begin()
    machine.fetch_end()
    machine.resume(before)
    assert machine.mode == 0


def fetch_in_a_prediction_aside(machine: PhaseMachine) -> None:
    validation, prediction = machine.interrupt(1), machine.interrupt(2)
    machine.fetch_begin()
    machine.fetch_end()
    machine.resume(prediction)
    machine.resume(validation)


EVENTS: dict[str, Callable[[PhaseMachine], object]] = {
    "train": lambda machine: machine.train_begin(None),
    "train 1": lambda machine: machine.train_begin(1),
    "train 2": lambda machine: machine.train_begin(2),
    "train ends": PhaseMachine.train_end,
    "epoch": lambda machine: machine.epoch_begin(0),
    "STEP": train_one_step,
    "batch": PhaseMachine.batch_begins,
    "fetch": PhaseMachine.fetch_begin,
    "fetched": PhaseMachine.fetch_end,
    "nothing left": PhaseMachine.fetch_exhausted,
    "compile": PhaseMachine.compile_begin,
    "compiled": PhaseMachine.compile_end,
    "callbacks": PhaseMachine.callbacks_begin,
    "batch callbacks end": PhaseMachine.batch_callbacks_end,
    "callbacks end": PhaseMachine.callbacks_end,
    "save": PhaseMachine.checkpoint_begin,
    "saved": PhaseMachine.checkpoint_end,
    "validate": lambda machine: machine.run_begin(1),
    "predict": lambda machine: machine.run_begin(2),
    "run ends": PhaseMachine.run_end,
    "no steps are seen": PhaseMachine.see_no_steps,
    "FETCH ASIDE": fetch_aside,
    "PREDICT ASIDE": fetch_in_a_prediction_aside,
}
"""What Keras does; in capitals: several things."""
WAITING = {"waits_each_step": True}
BLIND = {"sees_steps": False}
STEP = ["input_wait", "train_step", "step 1x32"]


class TestThePhases:
    @pytest.mark.parametrize(
        ("events", "recorded", "kind"),
        [
            pytest.param("train, STEP, STEP", ["callbacks", *STEP, *STEP], {},
                         id="steps that Keras does not wait for"),
            pytest.param("train, STEP, callbacks, batch callbacks end",
                         ["callbacks", *STEP, "device_sync", "callbacks"], WAITING,
                         id="a step that Keras waits for"),
            pytest.param("train, callbacks, batch, STEP",
                         ["callbacks", "callbacks", "start_up", *STEP], {},
                         id="a step with callbacks before it is waited for once"),
            pytest.param("train, fetch, fetched, compile, compiled",
                         ["callbacks", "input_wait", "train_step", "compile", "train_step"], {},
                         id="a step goes on when what is compiled in it is ready"),
            pytest.param("train, batch", ["callbacks", "other"], BLIND,
                         id="a step that cannot be seen is other"),
            pytest.param("train, callbacks, batch, callbacks, batch",
                         ["callbacks", *["callbacks", "start_up"] * 2], {},
                         id="steps are start_up until one was seen to pass"),
            pytest.param("train, STEP, callbacks, batch",
                         ["callbacks", *STEP, "callbacks", "input_wait"], {},
                         id="a step that was not seen to pass after one was is a wait"),
            pytest.param("train, no steps are seen, callbacks, batch, callbacks, "
                         "batch callbacks end",
                         ["callbacks", *["callbacks", "other"] * 2], {},
                         id="a step is other once none is seen, and the way to the next"),
            pytest.param("train 2, epoch, STEP, STEP",
                         ["callbacks", "epoch 0", "callbacks", *STEP, *STEP, "between_epochs"], {},
                         id="the end of an epoch is known by its number of steps"),
            pytest.param("train 1, epoch, STEP, callbacks, batch callbacks end",
                         ["callbacks", "epoch 0", "callbacks", *STEP, "device_sync", "callbacks",
                          "between_epochs"], WAITING,
                         id="the end of an epoch is known by it after callbacks too"),
            pytest.param("train, fetch, nothing left",
                         ["callbacks", "input_wait", "between_epochs"], {},
                         id="the end of an epoch is known by the lack of a batch"),
            pytest.param("train, epoch, callbacks end",
                         ["callbacks", "epoch 0", "callbacks", "start_up"], {},
                         id="before the first batch is start_up"),
            pytest.param("train, STEP, callbacks, callbacks end",
                         ["callbacks", *STEP, "callbacks", "between_epochs"], {},
                         id="after it is between epochs"),
            pytest.param("train, save, saved", ["callbacks", "checkpoint", "callbacks"], {},
                         id="checkpoints are among the callbacks"),
            pytest.param("train, train ends", ["callbacks", "other"], {},
                         id="after the training is other"),
            pytest.param("train, validate, fetch, fetched, callbacks, save, fetch, nothing left, "
                         "run ends",
                         ["callbacks", "validation (validation)", "input_wait (validation)",
                          "validation (validation)", "input_wait (validation)",
                          "validation (validation)", "between_epochs"], {},
                         id="in a validation only the wait for input is separate"),
            pytest.param("predict, run ends", ["predict (predict)", "other"], {},
                         id="a prediction alone ends in other"),
            pytest.param("train, FETCH ASIDE",
                         ["callbacks", "validation (validation)", "input_wait (validation)",
                          "validation (validation)", "callbacks"], {},
                         id="a validation by a callback comes back to it"),
        ],
    )  # fmt: skip
    def test_are_those_that_follow(
        self, events: str, recorded: list[str], kind: dict[str, bool]
    ) -> None:
        notes = Notes()
        machine = PhaseMachine(notes, **{"sees_steps": True, "waits_each_step": False, **kind})

        for event in events.split(", "):
            EVENTS[event](machine)

        assert notes.lines == recorded


class TestTheWaitOfATraining:
    @pytest.mark.parametrize(
        ("events", "waits"),
        [
            ("train, STEP, STEP, STEP", 3),
            ("train, STEP, validate, fetch, fetched, run ends, STEP", 2),
            ("train, PREDICT ASIDE", 0),
        ],
        ids=["for its own batches", "not a validation's", "not within a callback"],
    )
    def test_is_that_for_its_own_batches(self, events: str, waits: int) -> None:
        machine = PhaseMachine(Notes(), sees_steps=True, waits_each_step=False)

        for event in events.split(", "):
            EVENTS[event](machine)

        assert machine.training_wait_ns == waits

"""Specification of which phase follows which while Keras trains."""

from __future__ import annotations

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from gpumon.core.ring.format import MODE_SHIFT
from trainer_hooks.taps.phase_machine import PhaseMachine

START_UP = PHASE_NUMBER[TrainingPhase.START_UP]


class Notes:
    """A pen that keeps what it was told, as words."""

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


def machine_and_notes(
    *, sees_steps: bool = True, waits_each_step: bool = False
) -> tuple[PhaseMachine, Notes]:
    notes = Notes()
    return PhaseMachine(notes, sees_steps=sees_steps, waits_each_step=waits_each_step), notes


def train_one_step(machine: PhaseMachine) -> None:
    machine.fetch_begin()
    machine.fetch_end()
    machine.dispatched(1, 32)


class TestATrainingStep:
    def test_that_keras_does_not_wait_for(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)

        train_one_step(machine)
        train_one_step(machine)

        assert notes.lines[1:] == ["input_wait", "train_step", "step 1x32"] * 2

    def test_that_keras_waits_for(self) -> None:
        machine, notes = machine_and_notes(waits_each_step=True)
        machine.train_begin(None)

        train_one_step(machine)
        machine.callbacks_begin()
        machine.batch_callbacks_end()

        assert notes.lines[1:] == [
            "input_wait", "train_step", "step 1x32", "device_sync", "callbacks",
        ]  # fmt: skip

    def test_with_callbacks_before_it_is_waited_for_once(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)

        machine.callbacks_begin()
        machine.batch_begins()
        train_one_step(machine)

        assert notes.lines.count("input_wait") == 1

    def test_goes_on_when_what_is_compiled_in_it_is_ready(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        machine.fetch_begin()
        machine.fetch_end()

        machine.compile_begin()
        machine.compile_end()

        assert notes.lines[1:] == ["input_wait", "train_step", "compile", "train_step"]

    def test_that_cannot_be_seen_is_other(self) -> None:
        machine, notes = machine_and_notes(sees_steps=False)
        machine.train_begin(None)

        machine.batch_begins()

        assert notes.lines[-1] == "other"


class TestAStepThatWasNotSeenToPass:
    def test_is_start_up_until_one_is(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        for _ in range(2):
            machine.callbacks_begin()
            machine.batch_begins()

        assert notes.lines == ["callbacks"] + ["callbacks", "start_up"] * 2

    def test_is_a_wait_at_once_after_one_was(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        train_one_step(machine)
        machine.callbacks_begin()

        machine.batch_begins()

        assert notes.lines[-1] == "input_wait"

    def test_is_other_once_that_is_clear_and_so_is_the_way_to_the_next(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        machine.see_no_steps()
        machine.callbacks_begin()
        machine.batch_begins()
        machine.callbacks_begin()
        machine.batch_callbacks_end()

        assert notes.lines[1:] == ["callbacks", "other"] * 2


class TestTheWaitOfATraining:
    def test_is_that_for_its_own_batches(self) -> None:
        machine, _ = machine_and_notes()
        machine.train_begin(None)

        for _ in range(3):
            train_one_step(machine)

        assert machine.training_wait_ns == 3

    def test_is_not_that_of_a_validation(self) -> None:
        machine, _ = machine_and_notes()
        machine.train_begin(None)
        train_one_step(machine)
        machine.run_begin(1)
        machine.fetch_begin()
        machine.fetch_end()
        machine.run_end()
        train_one_step(machine)

        assert machine.training_wait_ns == 2

    def test_is_not_that_of_a_prediction_within_somebodys_callback(self) -> None:
        machine, _ = machine_and_notes()
        machine.train_begin(None)
        with machine.borrowed(1), machine.borrowed(2):
            machine.fetch_begin()
            machine.fetch_end()

        assert machine.training_wait_ns == 0


class TestTheEndOfAnEpoch:
    def test_is_known_by_its_number_of_steps(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(2)
        machine.epoch_begin(0)

        for _ in range(2):
            train_one_step(machine)

        assert notes.lines[-1] == "between_epochs"

    def test_is_known_by_it_after_callbacks_too(self) -> None:
        machine, notes = machine_and_notes(waits_each_step=True)
        machine.train_begin(1)
        machine.epoch_begin(0)
        train_one_step(machine)
        machine.callbacks_begin()

        machine.batch_callbacks_end()

        assert notes.lines[-1] == "between_epochs"

    def test_is_known_by_the_lack_of_a_batch(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        machine.fetch_begin()

        machine.fetch_exhausted()

        assert notes.lines[-1] == "between_epochs"


class TestTheTimeAroundEpochs:
    def test_is_start_up_before_the_first_batch(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        machine.epoch_begin(0)

        machine.callbacks_end()

        assert notes.lines == ["callbacks", "epoch 0", "callbacks", "start_up"]

    def test_is_between_epochs_after_it(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        train_one_step(machine)
        machine.callbacks_begin()

        machine.callbacks_end()

        assert notes.lines[-1] == "between_epochs"

    def test_has_checkpoints_among_the_callbacks(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        machine.checkpoint_begin()
        machine.checkpoint_end()

        assert notes.lines == ["callbacks", "checkpoint", "callbacks"]

    def test_after_the_training_is_other(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)

        machine.train_end()

        assert notes.lines[-1] == "other"


class TestValidation:
    def test_tells_only_the_wait_for_input_apart(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        machine.run_begin(1)
        machine.fetch_begin()
        machine.fetch_end()
        machine.callbacks_begin()
        machine.checkpoint_begin()
        machine.fetch_begin()
        machine.fetch_exhausted()
        machine.run_end()

        assert notes.lines[1:] == [
            "validation (validation)",
            "input_wait (validation)",
            "validation (validation)",
            "input_wait (validation)",
            "validation (validation)",
            "between_epochs",
        ]

    def test_alone_ends_in_other(self) -> None:
        machine, notes = machine_and_notes()
        machine.run_begin(2)
        machine.run_end()

        assert notes.lines == ["predict (predict)", "other"]

    def test_by_somebodys_callback_comes_back_to_it(self) -> None:
        machine, notes = machine_and_notes()
        machine.train_begin(None)
        with machine.borrowed(1):
            machine.fetch_begin()
            machine.fetch_end()

        assert notes.lines[-1] == "callbacks"
        assert machine.mode == 0

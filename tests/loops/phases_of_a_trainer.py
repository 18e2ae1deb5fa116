"""The contract of a run that mostly validates and saves, for each trainer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loops.builders_loops import Stretch, Waits, finds_wait

BATCHES, EPOCHS, VALIDATED = 12, 2, 5


def slow_everywhere() -> Waits:
    """Validation and checkpoints take most of it; a slow input takes the rest."""
    return Waits(
        fetch=0.012, step=0.004, validation_fetch=0.02, validation_step=0.04,
        checkpoint=0.3, callback=0.008,
    )  # fmt: skip


class Training:
    """One run: what it really waited for, and what its ring shows."""

    def __init__(self, waits: Waits, seen: Stretch, trainer: Any, *, global_step: int) -> None:
        self.waits, self.seen, self.trainer = waits, seen, trainer
        self.global_step = global_step


class PhasesOfATrainer:
    """To be inherited next to a fixture ``training``.

    Attributes:
        framework: As recorded in the ring.
        own_class: The class of its data.
        validation_called_in: The file that calls for a validation.
    """

    framework: str
    own_class: str
    validation_called_in: str

    def test_the_wait_for_input_is_found(self, training: Training) -> None:
        waits = training.waits

        assert waits.fetches == EPOCHS * (BATCHES + VALIDATED)
        assert finds_wait(training.seen, waits.input_wait_ns, steps=waits.fetches)

    @pytest.mark.parametrize("phase", ["checkpoint", "validation", "callbacks"])
    def test_the_share_of_a_phase_is_true(self, training: Training, phase: str) -> None:
        true_share = training.waits.in_phase_ns(phase) / training.seen.wall_ns

        assert training.seen.share(phase) == pytest.approx(true_share, abs=0.02)

    def test_a_step_includes_the_optimizer(self, training: Training) -> None:
        computed_share = training.waits.in_phase_ns("train_step") / training.seen.wall_ns

        assert 0 <= training.seen.share("train_step") - computed_share < 0.1

    def test_almost_nothing_is_other(self, training: Training) -> None:
        assert training.seen.share("other") < 0.02
        assert training.seen.share("between_epochs") < 0.03
        assert sum(training.seen.phase_ns.values()) == pytest.approx(
            training.seen.wall_ns, rel=0.001
        )

    def test_every_step_and_sample_is_counted(self, training: Training, builders: Any) -> None:
        after = training.seen.after

        assert after.steps == training.global_step == EPOCHS * BATCHES
        assert after.samples == EPOCHS * BATCHES * builders.BATCH
        assert after.epoch == EPOCHS - 1

    def test_the_facts_have_the_framework_and_the_loader(
        self, training: Training, builders: Any
    ) -> None:
        facts = training.seen.after.facts
        loads = {
            "kind": "DataLoader",
            "workers": 0,
            "batch_size": builders.BATCH,
            "batches": BATCHES,
        }

        assert facts.framework == self.framework
        assert {name: facts.loader[name] for name in loads} == loads

    def test_the_facts_have_the_loaders_class_and_the_lines_that_made_and_used_it(
        self, training: Training
    ) -> None:
        loader, built_in = training.seen.after.facts.loader, f"builders_{self.framework}.py"

        for prefix, file in (
            ("", f"test_{self.framework}_phases.py"),
            ("validation_", self.validation_called_in),
        ):
            assert loader[f"{prefix}class"] == self.own_class
            assert str(loader[f"{prefix}defined_at"]).startswith(f"{built_in}:")
            assert str(loader[f"{prefix}made_at"]).startswith(f"{file}:")
        assert (loader["validation_workers"], loader["validation_batches"]) == (0, VALIDATED)

    def test_the_time_afterwards_is_other(self, training: Training) -> None:
        assert (training.seen.after.present, training.seen.after.mode) == ("other", 0)

    def test_a_wait_in_validation_has_another_mode(self, training: Training) -> None:
        waits = {mode for phase, mode in training.seen.after.phases() if phase == "input_wait"}

        assert waits == {0, 1}

"""The training runs that every tool is shown, each with its trouble: numbers only, no framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One training run: how many steps, and what it waits for.

    Attributes:
        name: What ``--case`` calls it.
        steps: Training steps.
        input_s: Seconds the dataset sleeps for each batch.
        forward_s: Seconds the device works in a forward pass; 0: a real
            model's compute on the CPU and nothing else.
        backward_s: The same for a backward pass.
        callback_s: Seconds of the script's own bookkeeping after each step.
        checkpoint_every: Steps between two checkpoints; 0: none.
        checkpoint_s: Seconds each takes, the writing of the file included.
        validate_every: Steps between two validations; 0: none.
        validation_batches: Batches in each.
        metric_s: Seconds the host works on each of those after the device.
        epoch_steps: Steps of an epoch; 0: there is one of all steps.
        warm_up_epochs: Epochs left out of the figures.
        is_scheduler_first: The learning rate's scheduler is made before the
            tool is put in, as in most scripts; else after it.
    """

    name: str
    steps: int
    input_s: float = 0.0
    forward_s: float = 0.020
    backward_s: float = 0.030
    callback_s: float = 0.0
    checkpoint_every: int = 0
    checkpoint_s: float = 0.0
    validate_every: int = 0
    validation_batches: int = 0
    metric_s: float = 0.0
    epoch_steps: int = 0
    warm_up_epochs: int = 0
    is_scheduler_first: bool = False


COST_CASES = (
    Case(
        name="fast", steps=1250, forward_s=0.0, backward_s=0.0, epoch_steps=50, warm_up_epochs=4
    ),
    Case(
        name="slow_loader", steps=280, input_s=0.008, forward_s=0.0, backward_s=0.0,
        epoch_steps=20, warm_up_epochs=2,
    ),
)  # fmt: skip
"""What a hook costs: about 2 ms of real compute a step, alone and behind a slow loader."""

TRUTH_CASES = (
    Case(name="slow_data", steps=70, input_s=0.150),
    Case(name="healthy", steps=65, forward_s=0.080, backward_s=0.120),
    Case(name="checkpoint", steps=152, checkpoint_every=16, checkpoint_s=0.7),
    Case(name="callbacks", steps=150, callback_s=0.040),
    Case(name="validation", steps=120, validate_every=20, validation_batches=20, metric_s=0.040),
    Case(name="scheduler_first", steps=50, input_s=0.220, is_scheduler_first=True),
)
"""What a tool says: a device whose work is known, and one trouble each."""

START_CASE = Case(name="one_step", steps=1, forward_s=0.0, backward_s=0.0)

CASES = {case.name: case for case in (START_CASE, *COST_CASES, *TRUTH_CASES)}

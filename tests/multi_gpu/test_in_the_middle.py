"""Callbacks that act during training do the same as on one device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.multi_gpu.later import middle_builders
from tests.needs import in_make_truth

pytestmark = pytest.mark.multi_gpu

IS_COMPLETE = bool(os.environ.get("GPUMON_WHOLE_TABLE"))
"""Whether to test all combinations, as ``make truth`` does."""
SEVERAL = (2, 3) if IS_COMPLETE else (2,)


KINDS = (
    "checkpoints every third batch", "checkpoints of weights every epoch",
    "a backup every third batch", "early stopping", "a lower rate on a plateau",
    "averages swapped in",
    "get_weights", "serialize", "save", "predict", "evaluate",
)  # fmt: skip


@pytest.mark.parametrize("validates", [True, pytest.param(False, marks=in_make_truth)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_during_training_has_the_results_of_one_device(
    kind: str, validates: bool, tmp_path: Path
) -> None:
    def outcome(devices: int) -> Any:
        folder, monitor = tmp_path / str(devices), "val_loss" if validates else "loss"
        training = middle_builders.Trained(devices, folder, average=kind == "averages swapped in")
        training.fit(middle_builders.KINDS[kind](training, monitor), validates=validates)
        return {**training.outcome(), **middle_builders.numbers_in_files(training.folder)}

    one = outcome(1)
    for devices in SEVERAL:
        assert middle_builders.differing(outcome(devices), one) == {}

"""Callbacks that act during training do the same as on one device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.multi_gpu.later import m

pytestmark = pytest.mark.multi_gpu

IS_COMPLETE = bool(os.environ.get("GPUMON_WHOLE_TABLE"))
"""Whether to test all combinations, on two and on three devices, as ``make truth`` does."""
SEVERAL = (2, 3) if IS_COMPLETE else (2,)
WAYS = [("by_fit", True), ("by_batches", False)]
if IS_COMPLETE:
    WAYS += [("by_fit", False), ("by_batches", True)]


def trained(devices: int, way: str, kind: str, *, validates: bool, folder: Path) -> Any:
    training = m.Trained(devices, folder / str(devices), average=kind == "averages swapped in")
    monitor = "val_loss" if validates else "loss"
    getattr(training, way)(m.KINDS[kind](training, monitor), validates=validates)
    return training


KINDS = (
    "checkpoints every third batch", "checkpoints every epoch", "the best checkpoint",
    "checkpoints of weights every third batch", "checkpoints of weights every epoch",
    "a backup every third batch", "a backup every epoch",
    "early stopping", "a lower rate on a plateau", "averages swapped in",
    "get_weights", "serialize", "save", "predict", "evaluate",
)  # fmt: skip


@pytest.mark.parametrize(("way", "validates"), WAYS)
@pytest.mark.parametrize("kind", KINDS)
class TestEachCallback:
    def test_has_the_same_results_as_on_one_device(
        self, kind: str, way: str, validates: bool, tmp_path: Path
    ) -> None:
        def left(devices: int) -> Any:
            training = trained(devices, way, kind, validates=validates, folder=tmp_path)
            return {**training.left(), **m.numbers_in_files(training.folder)}

        one = left(1)
        for devices in SEVERAL:
            assert m.differing(left(devices), one) == {}

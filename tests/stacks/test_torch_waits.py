"""Real stacks of torch and the libraries around it, and the causes that they show."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause
from tests.stacks.seen import Seen

pytestmark = pytest.mark.keras_torch

INPUT, STEP, SAVE = IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP, IdleCause.CHECKPOINT
EXPECTED: dict[str, IdleCause | None] = {
    "loader_without_workers": INPUT,
    "loader_with_workers": INPUT,
    "web_dataset": INPUT,
    "torch_save": SAVE,
    "safetensors_save": SAVE,
    "h5py_write": SAVE,
    "backward": STEP,
    "optimizer": STEP,
    "collective": STEP,
    "computes_beside_a_checkpoint": None,
}


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen("torch_waits", EXPECTED)


@pytest.mark.parametrize("function", EXPECTED)
def test_a_wait_has_its_cause_and_no_other(seen: Seen, function: str) -> None:
    assert EXPECTED[function] in seen.causes(function)
    assert seen.causes(function) <= {EXPECTED[function], None}

"""Real stacks of TensorFlow, and the causes that they show."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause
from tests.stacks.seen import Seen

pytestmark = pytest.mark.keras_tensorflow

INPUT, SAVE = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT
EXPECTED: dict[str, IdleCause | None] = {
    "tf_data": INPUT,
    "tracing": IdleCause.COMPILE,
    "checkpoint": SAVE,
    "tensorboard": IdleCause.CALLBACKS,
}


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen("tensorflow_waits", EXPECTED)


@pytest.mark.parametrize("function", EXPECTED)
def test_a_wait_has_its_cause_and_no_other(seen: Seen, function: str) -> None:
    assert EXPECTED[function] in seen.causes(function)
    assert seen.causes(function) <= {EXPECTED[function], None}

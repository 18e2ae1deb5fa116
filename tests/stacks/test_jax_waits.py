"""Real stacks of JAX and the libraries around it, and the causes that they show."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause
from tests.stacks.seen import Seen

pytestmark = pytest.mark.keras_jax

INPUT, STEP, SAVE = IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP, IdleCause.CHECKPOINT
EXPECTED: dict[str, IdleCause | None] = {
    "grain_dataset": INPUT,
    "hugging_face_dataset": INPUT,
    "hugging_face_stream": INPUT,
    "block_until_ready": STEP,
    "read_an_array": STEP,
    "device_put": IdleCause.HOST_TO_DEVICE,
    "compiling": IdleCause.COMPILE,
    "checkpoint": SAVE,
}


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen("jax_waits", EXPECTED)


@pytest.mark.parametrize("function", EXPECTED)
def test_a_wait_has_its_cause_and_no_other(seen: Seen, function: str) -> None:
    assert EXPECTED[function] in seen.causes(function)
    assert seen.causes(function) <= {EXPECTED[function], None}

"""Real stacks of Keras on each backend, and the causes that they show."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause
from tests.needs import in_ci_on_jax
from tests.stacks.seen import Seen

pytestmark = [
    pytest.mark.keras_jax,
    pytest.mark.keras_tensorflow,
    pytest.mark.keras_torch,
    in_ci_on_jax,
]

EXPECTED: dict[str, IdleCause | None] = {
    "py_dataset": IdleCause.INPUT_WAIT,
    "py_dataset_with_workers": IdleCause.INPUT_WAIT,
    "callback": IdleCause.CALLBACKS,
    "evaluate": IdleCause.VALIDATION,
    "predict": IdleCause.VALIDATION,
    "save": IdleCause.CHECKPOINT,
}
BESIDE = {None, IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP, IdleCause.COMPILE, IdleCause.CALLBACKS}
"""What Keras also does within each of these."""


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen("keras_waits", EXPECTED)


@pytest.mark.parametrize("function", EXPECTED)
def test_a_wait_has_its_cause(seen: Seen, function: str) -> None:
    assert EXPECTED[function] in seen.causes(function)
    assert seen.causes(function) <= {EXPECTED[function], *BESIDE}

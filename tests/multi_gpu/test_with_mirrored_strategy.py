"""A plain ``MirroredStrategy`` in the same process as the ratio model, and ``clear_session``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.keras.output_of_script import json_printed_by
from tests.needs import in_make_truth

pytestmark = [pytest.mark.multi_gpu, in_make_truth]


@pytest.fixture(scope="module")
def results() -> Any:
    """How far from one device, and what was refused."""
    return json_printed_by("tests.multi_gpu.with_mirrored_strategy")


@pytest.mark.parametrize("which", ["mirrored", "before", "with it", "cleared"])
def test_both_train_as_on_one_device_after_clear_session_too(results: Any, which: str) -> None:
    assert results[which] <= 1e-6


def test_its_validation_is_tagged(results: Any) -> None:
    assert results["tagged"] is True


@pytest.mark.parametrize("kind", ["arrays", "tf.data"])
def test_it_neither_validates_nor_evaluates_copies_of_samples(results: Any, kind: str) -> None:
    assert ["evaluate would count" in refused for refused in results[kind]] == [True, True]

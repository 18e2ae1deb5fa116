"""A Keras with other private names: ``multi_gpu_model`` refuses it and has changed nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import builders, keras
from trainer_hooks.taps import keras_private

pytestmark = pytest.mark.multi_gpu

NEEDED = keras_private.NEEDED


def other_signature(something_else: object) -> None: ...


@pytest.mark.parametrize(
    ("needed", "found"),
    [(needed, keras_private._NOTHING) for needed in NEEDED]
    + [(needed, other_signature) for needed in NEEDED if needed.takes],
)
def test_a_private_name_that_changed_is_refused(
    needed: Any, found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    attribute_of = keras_private.attribute_of
    monkeypatch.setattr(
        keras_private,
        "attribute_of",
        lambda owner, name: found if name == needed.name else attribute_of(owner, name),
    )
    template = builders.dense()
    before = template.get_weights()

    with pytest.raises(ValueError, match=rf"Keras {keras.__version__}.*\.{needed.name} is not"):
        builders.parallel(template)

    for one, other in zip(template.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_parallel_model_leaves_names_and_numbers_of_later_models_unchanged() -> None:
    def made_later(*, parallel: bool) -> list[str]:
        keras.utils.set_random_seed(1)
        keras.utils.clear_session()
        template = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
        if parallel:
            builders.parallel(template)
        later = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
        numbers = [str(weight.tolist()) for weight in later.get_weights()]
        return [later.name, later.layers[0].name, keras.optimizers.SGD().name, *numbers]

    assert made_later(parallel=True) == made_later(parallel=False)

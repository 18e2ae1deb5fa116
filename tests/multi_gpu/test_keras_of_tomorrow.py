"""A Keras that has other private names: ``multi_gpu_model`` refuses it, and has changed nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import b, keras
from trainer_hooks.taps import keras_private

pytestmark = pytest.mark.multi_gpu

NEEDED = keras_private.NEEDED
METHODS = [needed for needed in NEEDED if needed.takes]


def otherwise(something_else: object) -> None:
    """A method of another signature."""


@pytest.mark.parametrize(
    ("needed", "found"),
    [(needed, keras_private._NOTHING) for needed in NEEDED]
    + [(needed, otherwise) for needed in METHODS],
    ids=[needed.name for needed in NEEDED] + [f"{needed.name} otherwise" for needed in METHODS],
)
class TestANeededName:
    def test_that_is_not_as_it_was_is_refused_in_a_sentence(
        self, needed: Any, found: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look = keras_private.attribute_of

        def look_tomorrow(owner: object, name: str) -> object:
            return found if name == needed.name else look(owner, name)

        monkeypatch.setattr(keras_private, "attribute_of", look_tomorrow)
        template = b.dense()
        before = template.get_weights()

        with pytest.raises(ValueError, match=rf"Keras {keras.__version__}.*\.{needed.name} is not"):
            b.parallel(template)

        for one, other in zip(template.get_weights(), before, strict=True):
            np.testing.assert_array_equal(one, other)


class TestAModelThatIsMade:
    def test_leaves_the_names_and_numbers_of_later_models_as_they_were(self) -> None:
        def made_later() -> list[str]:
            keras.utils.set_random_seed(1)
            keras.utils.clear_session()
            template = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
            if splits:
                b.parallel(template)
            later = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
            numbers = [str(weight.tolist()) for weight in later.get_weights()]
            return [later.name, later.layers[0].name, keras.optimizers.SGD().name, *numbers]

        splits = False
        alone = made_later()
        splits = True

        assert made_later() == alone

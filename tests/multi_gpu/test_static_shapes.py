"""The loss of each output has the static batch size that it has on one device.

Keras weights the mean of each output's loss over the batches by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.keras.later import builders as k
from tests.multi_gpu.later import builders

pytestmark = pytest.mark.multi_gpu
BATCH = 16


def trained(model: Any, *callbacks: Any) -> dict[str, list[float]]:
    """The history of two epochs, whose last batch is smaller."""
    model.compile("sgd", {"kind": "sparse_categorical_crossentropy", "size": "mse"})
    x, y, _ = builders.named_rows()
    arguments = {"epochs": 2, "shuffle": False, "verbose": 0, "callbacks": list(callbacks)}
    history: dict[str, list[float]] = model.fit(x, y, batch_size=BATCH, **arguments).history
    return history


def test_the_loss_of_each_output_is_that_on_one_device() -> None:
    alone = trained(builders.of_two_inputs_and_outputs())

    split = trained(builders.parallel(builders.of_two_inputs_and_outputs()), k.tagger())

    assert split.keys() == alone.keys()
    for name, losses in alone.items():
        np.testing.assert_allclose(split[name], losses, rtol=1e-6, err_msg=name)

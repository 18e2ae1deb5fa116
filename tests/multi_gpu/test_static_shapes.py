"""The loss of each output has the static batch size that it has on one device.

Keras weights the mean of each output's loss over the batches by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.imported_later import ImportedLater
from tests.keras.later import b as k
from tests.multi_gpu.later import b, tf
from tests.needs import in_make_truth

eager_fetch: Any = ImportedLater("tests.keras.fetching_eagerly")

pytestmark = pytest.mark.multi_gpu
BATCH = 16


def trained(model: Any, source: str, *callbacks: Any) -> dict[str, list[float]]:
    """The history of two epochs, whose last batch is smaller where sizes may differ."""
    model.compile("sgd", {"kind": "sparse_categorical_crossentropy", "size": "mse"})
    x, y, _ = b.named_rows()
    data = {"x": x, "y": y, "batch_size": BATCH}
    if source != "arrays":
        rows = tf.data.Dataset.from_tensor_slices((x, y))
        data = {"x": rows.batch(BATCH, drop_remainder=True)}
    arguments = {"epochs": 2, "shuffle": False, "verbose": 0, "callbacks": list(callbacks)}
    history: dict[str, list[float]] = model.fit(**data, **arguments).history
    return history


@pytest.mark.parametrize(
    ("source", "fetches_eagerly"),
    [
        ("arrays", False),
        pytest.param("arrays", True, marks=in_make_truth),
        pytest.param("tf.data of one size", False, marks=in_make_truth),
        pytest.param("tf.data of one size", True, marks=in_make_truth),
    ],
)
class TestTheLossOfEachOutput:
    def test_is_that_on_one_device(
        self, source: str, fetches_eagerly: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if fetches_eagerly:
            eager_fetch.fetch_eagerly(monkeypatch)
        alone = trained(b.of_two_inputs_and_outputs(), source)

        split = trained(b.parallel(b.of_two_inputs_and_outputs()), source, k.tagger())

        assert split.keys() == alone.keys()
        for name, losses in alone.items():
            np.testing.assert_allclose(split[name], losses, rtol=1e-6, err_msg=name)

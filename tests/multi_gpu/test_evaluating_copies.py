"""``evaluate`` refuses batches that are filled up with copies, on however many devices."""

from __future__ import annotations

import pytest

from tests.multi_gpu.later import m, tf
from trainer_hooks.batches import fixed_batches

pytestmark = pytest.mark.multi_gpu


MODELS = {
    "one device": lambda: m.made(1)[1],
    "a parallel model": lambda: m.made(2)[1],
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("tail", ["repeat", "pad"])
def test_and_trains_on_them(kind: str, tail: str) -> None:
    x, y = m.rows()
    model, size = MODELS[kind](), 8
    for data in ((x, y), tf.data.Dataset.from_tensor_slices((x, y))):
        batches = fixed_batches(data, size, tail=tail)
        model.fit(batches, verbose=0)
        with pytest.raises(ValueError, match="evaluate would count"):
            model.evaluate(batches, verbose=0)
        with pytest.raises(ValueError, match="evaluate would count"):
            model.fit(x, y, verbose=0, validation_data=batches)

    assert len(model.evaluate(x, y, batch_size=size, verbose=0)) == 2

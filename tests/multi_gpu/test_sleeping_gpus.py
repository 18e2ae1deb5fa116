"""GPUs simulated by sleeps, each for as long as its speed says.

Where they compute which samples: see ``test_parts_stay_on_their_devices.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.multi_gpu.later import b, keras
from trainer_hooks.examples.busy_spans import unoccupied_seconds

sleeping: Any = ImportedLater("examples.unequal_gpus")

pytestmark = pytest.mark.multi_gpu


class Board:
    """Two GPUs of these speeds in samples/s, and when each was busy."""

    def __init__(self, *speeds: float) -> None:
        self.spans_ns: list[list[tuple[int, int]]] = [[], []]
        gpus = {
            device: sleeping.SleepingGpu(speed, lambda *span, own=own: own.append(span))
            for device, speed, own in zip(b.DEVICES, speeds, self.spans_ns, strict=False)
        }
        layers = [
            keras.Input((b.FEATURES,)),
            keras.layers.Dense(4),
            sleeping.SleepingCompute(gpus),
            keras.layers.Dense(b.CLASSES, activation="softmax"),
        ]
        self.model = b.parallel(keras.Sequential(layers), devices=b.DEVICES[:2], ratios=(1, 1))
        self.model.compile("sgd", "sparse_categorical_crossentropy")

    def fit(self, *, batches: int) -> Board:
        x, y, _ = b.rows(40 * batches)
        self.model.fit(x, y, batch_size=40, shuffle=False, verbose=0)
        return self

    @property
    def busy_s(self) -> list[float]:
        return [sum(end - start for start, end in spans) / 1e9 for spans in self.spans_ns]


class TestASimulatedGpu:
    @pytest.mark.measured
    @pytest.mark.alone
    def test_is_busy_for_as_long_as_its_speed_says(self) -> None:
        board = Board(800, 400).fit(batches=4)

        assert board.busy_s == pytest.approx([80 / 800, 80 / 400], rel=0.05)

    @pytest.mark.measured
    @pytest.mark.alone
    def test_computes_while_another_does(self) -> None:
        board = Board(200, 200).fit(batches=1)

        alone_s = unoccupied_seconds(*board.spans_ns)
        assert alone_s < 0.25 * board.busy_s[0]

    def test_takes_no_time_where_the_model_is_not_split(self) -> None:
        board = Board(200, 200)

        board.model.template.predict(b.rows(20)[0], verbose=0)

        assert board.spans_ns == [[], []]

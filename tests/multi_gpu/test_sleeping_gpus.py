"""GPUs simulated by sleeps: each computes its own part of a batch, where it says that it does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gpumon.core.join.batch_shares import split_counts
from tests.imported_later import ImportedLater
from tests.multi_gpu.later import b, keras
from trainer_hooks.examples.busy_spans import unoccupied_seconds

ran: Any = ImportedLater("tests.multi_gpu.operations_run")
sleeping: Any = ImportedLater("examples.unequal_gpus")

pytestmark = pytest.mark.multi_gpu


class Board:
    """GPUs of these speeds in samples/s, and what each noted."""

    def __init__(self, *speeds: float) -> None:
        self.devices = b.DEVICES[: len(speeds)]
        self.spans_ns: list[list[tuple[int, int]]] = [[] for _ in speeds]
        self.computed: list[list[int]] = [[] for _ in speeds]
        self._gpus = {
            device: self._gpu(number, speed)
            for number, (device, speed) in enumerate(zip(self.devices, speeds, strict=True))
        }

    def _gpu(self, number: int, speed: float) -> Any:
        computed, spans_ns = self.computed[number], self.spans_ns[number]

        class Counting(sleeping.SleepingGpu):  # type: ignore[misc]
            def compute(self, rows: Any, part: float) -> Any:
                computed.append(len(rows))
                return super().compute(rows, part)

        return Counting(speed, lambda start_ns, end_ns: spans_ns.append((start_ns, end_ns)))

    def model(self, *ratios: float) -> Any:
        layers = [
            keras.Input((b.FEATURES,)),
            keras.layers.Dense(4),
            sleeping.SleepingCompute(self._gpus),
            keras.layers.Dense(b.CLASSES, activation="softmax"),
        ]
        model = b.parallel(keras.Sequential(layers), devices=self.devices, ratios=ratios)
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    @property
    def busy_s(self) -> list[float]:
        return [sum(end - start for start, end in spans) / 1e9 for spans in self.spans_ns]


def fit(model: Any, *, count: int, batch: int) -> None:
    x, y, _ = b.rows(count)
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)


class TestASimulatedGpu:
    def test_computes_the_samples_of_its_share_forward_and_backward(self) -> None:
        board = Board(5_000, 5_000, 5_000)

        fit(board.model(4, 3, 2), count=56, batch=28)

        for computed, count in zip(board.computed, split_counts(28, [4, 3, 2]), strict=True):
            assert computed == [count] * 4

    @pytest.mark.measured
    @pytest.mark.alone
    def test_is_busy_for_as_long_as_its_speed_says(self) -> None:
        board = Board(800, 400)

        fit(board.model(1, 1), count=160, batch=40)

        assert board.busy_s == pytest.approx([80 / 800, 80 / 400], rel=0.05)

    @pytest.mark.measured
    @pytest.mark.alone
    def test_computes_while_another_does(self) -> None:
        board = Board(200, 200)

        fit(board.model(1, 1), count=40, batch=40)

        alone_s = unoccupied_seconds(board.spans_ns[0], board.spans_ns[1])
        assert alone_s < 0.25 * board.busy_s[0]

    def test_takes_no_time_where_the_model_is_not_split(self) -> None:
        board = Board(200, 200)

        template = board.model(1, 1).template
        template.predict(b.rows(20)[0], verbose=0)

        assert board.computed == [[], []]


class TestTheDeviceThatASimulatedGpuTakesForItsOwn:
    def test_is_the_one_on_which_tensorflow_ran_it(self) -> None:
        model = Board(5_000, 5_000, 5_000).model(4, 3, 2)

        operations = ran.operations_of(lambda: fit(model, count=28, batch=28))

        # Graphs of models that trained before in this process may be told of, too.
        at_work = {(one.name, one.device) for one in operations if "/busy_on" in one.name}
        ran_on = Counter((name.rsplit("/", 1)[-1], device) for name, device in at_work)
        assert {
            name for name, device in ran_on if name != f"busy_on_{device}".replace(":", "_")
        } == set()
        for number in (1, 2, 3):  # forward and backward
            assert ran_on[f"busy_on_CPU_{number}", f"CPU:{number}"] >= 2

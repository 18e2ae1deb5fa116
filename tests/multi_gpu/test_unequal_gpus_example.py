"""The example on unequal GPUs: simulated speeds, ratios from options and from typed lines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.multi_gpu.later import builders, keras
from trainer_hooks.examples.busy_spans import unoccupied_seconds

example: Any = ImportedLater("examples.unequal_gpus")

pytestmark = pytest.mark.multi_gpu


@pytest.mark.measured
@pytest.mark.alone
def test_simulated_gpus_are_busy_according_to_their_speed_and_at_the_same_time() -> None:
    spans_ns: list[list[tuple[int, int]]] = [[], []]
    gpus = {
        device: example.SleepingGpu(speed, lambda *span, own=own: own.append(span))
        for device, speed, own in zip(builders.DEVICES[:2], (200, 100), spans_ns, strict=True)
    }
    layers = [
        keras.Input((builders.FEATURES,)),
        keras.layers.Dense(4),
        example.SleepingCompute(gpus),
    ]
    model = builders.parallel(keras.Sequential(layers), devices=builders.DEVICES[:2], ratios=(1, 1))
    model.compile("sgd", "mse")
    x, _, _ = builders.rows(40)

    model.fit(x, x[:, :4], batch_size=40, verbose=0)

    busy_s = [sum(end - start for start, end in spans) / 1e9 for spans in spans_ns]
    assert busy_s == pytest.approx([20 / 200, 20 / 100], rel=0.1)
    assert unoccupied_seconds(spans_ns[0], spans_ns[1]) < 0.25 * busy_s[0]


def after_typing(*lines: bytes | None) -> Any:
    """The model of a training run at whose batches' ends these could be read."""
    to_read = iter(lines)
    typed = example.TypedRatios(lambda: next(to_read))
    typed.set_model(SimpleNamespace(ratios=[1, 1], stop_training=False))
    for batch in range(len(lines)):
        typed.on_train_batch_end(batch)
    return typed.model


class TestTypedRatios:
    @pytest.mark.parametrize(
        ("lines", "ratios"),
        [
            ([b"3:2\n"], [3, 2]),
            ([b" 3.0  2 \r\n"], [3, 2]),
            ([b"3 "], [1, 1]),
            ([b"3 ", b"2\n4 "], [3, 2]),
            ([b"three to two\n"], [1, 1]),
        ],
    )
    def test_are_used_once_the_line_is_complete(self, lines: list[bytes], ratios: Any) -> None:
        assert after_typing(*lines).ratios == ratios

    def test_may_stop_the_training_run(self) -> None:
        assert after_typing(b"stop\n").stop_training


class TestTheExample:
    def test_refuses_impossible_ratios_before_it_trains(self, tmp_path: Path, capsys: Any) -> None:
        with pytest.raises(SystemExit) as ended:
            example.main(["--spans", str(tmp_path / "busy.jsonl"), "--ratios", "3", "2", "1"])

        assert ended.value.code == 2
        assert "one number for each GPU" in capsys.readouterr().err

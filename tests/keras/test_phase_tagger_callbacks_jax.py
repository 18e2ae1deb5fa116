"""``PhaseTagger`` tells callbacks apart by their class, in the ring and in the report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.keras.later import b, keras

pytestmark = pytest.mark.keras_jax
MS = 1_000_000


def sleeper(name: str, *methods: str, seconds: float, **settings: Any) -> Any:
    """A sleeping callback of a class of its own."""
    return type(name, (b.SleepingCallback,), {})(*methods, seconds=seconds, **settings)


@pytest.mark.measured
class TestTheTimeOfACallback:
    @pytest.mark.parametrize("first", [True, False], ids=["tagger first", "tagger last"])
    def test_is_recorded_by_its_class(self, first: bool) -> None:
        slow = sleeper("Upload", "on_epoch_end", "on_train_batch_end", seconds=0.01)
        quick = sleeper("Notify", "on_epoch_begin", seconds=0.003)
        callbacks = [b.tagger(), slow, quick] if first else [slow, quick, b.tagger()]

        b.fit(b.small_model(), b.SlowBatches(0.0), *callbacks, steps=8)

        recorded = b.facts().callback_ns
        assert recorded["Upload"] == pytest.approx(slow.spent_ns, rel=0.05, abs=4 * MS)
        assert recorded["Notify"] == pytest.approx(quick.spent_ns, rel=0.05, abs=2 * MS)

    @pytest.mark.versions
    def test_is_recorded_before_each_batch_and_around_validations_too(self) -> None:
        before = sleeper("Before", "on_train_batch_begin", "on_test_end", seconds=0.005)

        validated = {"validation_data": b.rows_and_sums(32)}
        b.fit_rows(b.small_model(), 160, b.tagger(), before, **validated)

        assert b.facts().callback_ns["Before"] == pytest.approx(
            before.spent_ns, rel=0.05, abs=3 * MS
        )

    def test_adds_up_over_those_of_one_class_and_the_fits_of_a_process(self) -> None:
        twins = [sleeper("Twin", "on_epoch_end", seconds=0.01) for _ in range(2)]
        model = b.small_model()

        for _ in range(2):
            b.fit(model, b.SlowBatches(0.0), b.tagger(), *twins, steps=2, epochs=1)

        assert b.facts().callback_ns["Twin"] >= 4 * 10 * MS

    def test_of_a_checkpoint_stays_a_checkpoint(self, tmp_path: Path) -> None:
        class Backup(keras.callbacks.BackupAndRestore):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                time.sleep(0.02)
                super().on_epoch_end(epoch, logs)

        class EachBatch(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                time.sleep(0.005)

        saves = keras.callbacks.ModelCheckpoint(str(tmp_path / "model.keras"))
        batches = EachBatch(str(tmp_path / "each.keras"))
        backup = Backup(str(tmp_path / "backup"))

        b.fit(b.small_model(), b.SlowBatches(0.0), saves, batches, b.tagger(), backup, steps=5)

        recorded, by_class = b.phase_ns(), b.facts().callback_ns
        assert by_class["Backup"] >= 2 * 20 * MS
        assert by_class["EachBatch"] >= 10 * 5 * MS
        saved_ns = sum(by_class[name] for name in ("Backup", "EachBatch", "ModelCheckpoint"))
        assert recorded["checkpoint"] == pytest.approx(saved_ns, rel=0.1, abs=5 * MS)


class TestTheOrderOfTheCallbacks:
    def test_is_what_it_is_without_the_tagger(self) -> None:
        methods = [
            f"on_{what}_{edge}"
            for what in ("train", "epoch", "train_batch", "test", "test_batch")
            for edge in ("begin", "end")
        ]

        def order(*tagger: Any) -> list[tuple[str, str]]:
            handler: list[tuple[str, str]] = []

            def hears(name: str) -> Any:
                words = {m: lambda *_, m=m, **__: handler.append((name, m)) for m in methods}
                return keras.callbacks.LambdaCallback(**words)

            callbacks = [hears("first"), *tagger, hears("second")]
            validated = {"validation_data": b.rows_and_sums(32)}
            b.fit_rows(b.small_model(), 64, *callbacks, **validated)
            return handler

        assert order(b.tagger()) == order()

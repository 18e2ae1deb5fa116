"""Whatever fails in the hooks, ``fit`` ends with the same weights as without them.

The functions of ours that training calls are observed while it runs. Each is called by a guard,
by another of ours, or makes a call of the training's.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.borders import Borders, broken
from tests.keras.later import builders, keras, nan_guard
from trainer_hooks.ring import process_ring

BATCH, ROWS = 8, 32
WAYS: dict[str, dict[str, Any]] = {
    "arrays": {},
    "a generator": {},
    "a PyDataset": {},
    "several steps": {"steps_per_execution": 4},
    "several eager steps": {"steps_per_execution": 4, "run_eagerly": True},
}
IS_WHOLE = bool(os.environ.get("GPUMON_WHOLE_TABLE"))
ON_EACH = ("arrays", "a generator", "a PyDataset")
CELLS = [
    *[("tensorflow", way) for way in WAYS if IS_WHOLE or way == "arrays"],
    *[("jax", way) for way in (*ON_EACH, "several steps") if IS_WHOLE or way != "a generator"],
    *[("torch", way) for way in ON_EACH if IS_WHOLE or way != "a generator"],
]


_BROKEN: set[str] = set()
"""Functions broken in an earlier way: they are called alike in all."""


def batches() -> Iterator[Any]:
    rows, sums = builders.rows_and_sums(ROWS)
    for at in range(0, ROWS, BATCH):
        yield rows[at : at + BATCH], sums[at : at + BATCH]


def as_py_dataset() -> Any:
    class Dataset(keras.utils.PyDataset):  # type: ignore[misc]
        num_batches = ROWS // BATCH

        def __len__(self) -> int:
            return self.num_batches

        def __getitem__(self, index: int) -> Any:
            return list(batches())[index]

    return Dataset()


class Training:
    """One that can be made again, from the same weights, on what was traced and compiled once."""

    def __init__(self, way: str) -> None:
        self.model = builders.small_model(jit_compile=False, **WAYS[way])
        self._way = way
        self._weights = self.model.get_weights()
        self._nan_guard = nan_guard.NaNGuard()

    def outcome(self, *callbacks: Any) -> list[bytes]:
        """Train and validate; the weights after it."""
        self.model.set_weights(self._weights)
        rows, sums = builders.rows_and_sums(ROWS)
        data: dict[str, Any] = {"x": rows, "y": sums, "batch_size": BATCH}
        if self._way in ("a generator", "a PyDataset"):
            data = {"x": batches() if self._way == "a generator" else as_py_dataset()}
        settings = {"shuffle": False, "verbose": 0, "validation_data": (rows[:BATCH], sums[:BATCH])}
        self.model.fit(**data, **settings, callbacks=list(callbacks))
        return [weight.tobytes() for weight in self.model.get_weights()]

    def left_by_all_hooks(self) -> list[bytes]:
        """... with a tagger, beside a callback for which Keras waits, and a guard against NaN."""

        class Saves(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                """Writing a file takes longer than all else here."""

        beside = [builders.an_ordinary_callback(), Saves("never_written.keras")]
        return self.outcome(builders.tagger(), self._nan_guard, *beside)


def warnings_of_ours(train: Callable[[], Any]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = train()
    texts = [str(one.message) for one in caught]
    return outcome, [text for text in texts if "gpumon" in text or "NaNGuard" in text]


@pytest.mark.parametrize(
    ("backend", "way"),
    [pytest.param(*cell, marks=getattr(pytest.mark, f"keras_{cell[0]}")) for cell in CELLS],
)
def test_training_goes_on_whichever_hook_raises(
    backend: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(way)
    bare = training.outcome()
    borders = Borders(training.left_by_all_hooks)
    assert borders.open == {}
    assert len(borders.guarded) > 15

    for name, code in borders.guarded.items():
        if name in _BROKEN:
            continue
        with broken(code) as calls:
            outcome, warned = warnings_of_ours(training.left_by_all_hooks)
            if not calls:  # it is called as the process starts up, or as a step is traced
                monkeypatch.setattr(process_ring._Slot, "ring", None)
                outcome, warned = warnings_of_ours(Training(way).left_by_all_hooks)
        assert calls, name
        assert outcome == bare, name
        assert len(warned) <= 1, (name, warned)
        _BROKEN.add(name)
    if backend == "tensorflow":
        from trainer_hooks.taps.tensorflow import fetches

        fetches._forget_in_child()  # a broken end has left its patch on the iterators

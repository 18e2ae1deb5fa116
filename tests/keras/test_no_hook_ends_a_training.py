"""Whatever fails in the hooks, ``fit`` ends with the weights that it has without them.

Which functions of ours a training calls is not written down here: it is seen while one runs. Each
is called by a guard, by another of ours, or is known to carry a call of theirs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.borders import Borders, broken
from tests.keras.later import b, g, keras
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
    *[("tensorflow", way) for way in WAYS if IS_WHOLE or way in ("arrays", "several steps")],
    *[("jax", way) for way in (*ON_EACH, "several steps")],
    *[("torch", way) for way in ON_EACH],
]


_BROKEN: set[str] = set()
"""Functions that an earlier way went on without: they are called alike in all."""


def batches() -> Iterator[Any]:
    rows, sums = b.rows_and_sums(ROWS)
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
        self.model = b.small_model(jit_compile=False, **WAYS[way])
        self._way = way
        self._weights = self.model.get_weights()
        self._nan_guard = g.NaNGuard()

    def left(self, *callbacks: Any) -> list[bytes]:
        """Train and validate; the weights after it."""
        self.model.set_weights(self._weights)
        rows, sums = b.rows_and_sums(ROWS)
        data: dict[str, Any] = {"x": rows, "y": sums, "batch_size": BATCH}
        if self._way in ("a generator", "a PyDataset"):
            data = {"x": batches() if self._way == "a generator" else as_py_dataset()}
        said = {"shuffle": False, "verbose": 0, "validation_data": (rows[:BATCH], sums[:BATCH])}
        self.model.fit(**data, **said, callbacks=list(callbacks))
        return [weight.tobytes() for weight in self.model.get_weights()]

    def left_by_all_hooks(self) -> list[bytes]:
        """... with a tagger, beside a callback for which Keras waits, and a guard against NaN."""
        beside = [b.an_ordinary_callback(), keras.callbacks.ModelCheckpoint("checkpoint.keras")]
        return self.left(b.tagger(), self._nan_guard, *beside)


def said_by_us(train: Callable[[], Any]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        left = train()
    texts = [str(one.message) for one in said]
    return left, [text for text in texts if "gpumon" in text or "NaNGuard" in text]


@pytest.mark.parametrize(
    ("backend", "way"),
    [pytest.param(*cell, marks=getattr(pytest.mark, f"keras_{cell[0]}")) for cell in CELLS],
)
class TestATraining:
    def test_calls_nothing_of_ours_without_a_guard(
        self, backend: str, way: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        training = Training(way)

        assert Borders(training.left_by_all_hooks).open == {}

    def test_goes_on_whatever_raises(
        self, backend: str, way: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        training = Training(way)
        bare = training.left()
        guarded = Borders(training.left_by_all_hooks).guarded
        assert len(guarded) > 15

        for name, code in guarded.items():
            if name in _BROKEN:
                continue
            with broken(code) as calls:
                left, said = said_by_us(training.left_by_all_hooks)
                if not calls:  # it is called as the process starts up, or as a step is traced
                    monkeypatch.setattr(process_ring._Slot, "ring", None)
                    left, said = said_by_us(Training(way).left_by_all_hooks)
            assert calls, name
            assert left == bare, name
            assert len(said) <= 1, (name, said)
            _BROKEN.add(name)

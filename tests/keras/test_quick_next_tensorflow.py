"""The quick way to the next batch is TensorFlow's own: same batches, same ends, same errors."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.imported_later import ImportedLater
from tests.keras.later import tf
from trainer_hooks.ring.guard import Guard

split: Any = ImportedLater("trainer_hooks.taps.tensorflow.split")

pytestmark = pytest.mark.keras_tensorflow
ROWS = np.arange(28, dtype="float32").reshape(7, 4)


def batches_of(*parts: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(parts).batch(3)


def iter_of(generator: Callable[[], Any]) -> Any:
    """Of pairs of ``ROWS``."""
    spec = tf.TensorSpec((7, 4)), tf.TensorSpec((7, 4))
    return iter(tf.data.Dataset.from_generator(generator, output_signature=spec))


DATA = {
    "a pair": lambda: batches_of(ROWS, ROWS.sum(1)),
    "with weights": lambda: batches_of(ROWS, ROWS.sum(1), np.ones(7)),
    "one tensor": lambda: batches_of(ROWS).map(lambda rows: rows),
    "a tuple of one": lambda: batches_of(ROWS),
    "names": lambda: batches_of({"a": ROWS, "b": ROWS * 2}, ROWS.sum(1)),
    "nested": lambda: batches_of((ROWS, ROWS * 2), ROWS.sum(1)),
    "ragged": lambda: batches_of(tf.ragged.constant([[1.0], [2.0, 3.0]]), np.ones(2)),
    "sparse": lambda: batches_of(tf.sparse.eye(4), np.ones(4)),
    "empty": lambda: batches_of(ROWS, ROWS).take(0),
    "of unknown size": lambda: batches_of(ROWS, ROWS).filter(lambda *_: True).unbatch().batch(2),
}


def all_of(iterator: Any, following: Callable[[Any], Any]) -> list[Any]:
    def batches() -> Iterator[Any]:
        with contextlib.suppress(StopIteration):
            while True:
                yield following(iterator)

    return list(batches())


def plain(batch: Any) -> Any:
    """Every number of it, and its structure."""
    tensors = tf.nest.flatten(batch, expand_composites=True)
    numbers = [(tensor.dtype, tensor.numpy().tolist()) for tensor in tensors]
    return tf.nest.map_structure(lambda part: type(part).__name__, batch), numbers


class TestTheQuickWay:
    @pytest.mark.parametrize("kind", DATA)
    def test_gives_what_tensorflow_gives(self, kind: str) -> None:
        data = DATA[kind]()

        following, iterator = split.QuickNext(Guard(print)), iter(data)
        quick = [plain(batch) for batch in all_of(iterator, following)]

        assert quick == [plain(batch) for batch in all_of(iter(data), next)]
        assert kind != "a pair" or following._fetch is not None  # the quick way was used

    def test_ends_again_and_again(self) -> None:
        iterator, quick = iter(DATA["empty"]()), split.QuickNext(Guard(print))

        for _ in range(3):
            with pytest.raises(StopIteration):
                quick(iterator)

    def test_raises_what_tensorflow_raises(self) -> None:
        def broken() -> Any:
            yield ROWS, ROWS
            raise OSError("disk")

        errors = []
        for following in (next, split.QuickNext(Guard(print))):
            iterator = iter_of(broken)
            following(iterator)
            with pytest.raises(tf.errors.OpError, match="disk") as raised:
                following(iterator)
            errors.append((raised.type, str(raised.value).splitlines()[0]))

        assert errors[0] == errors[1]

    def test_follows_from_one_iterator_to_the_next(self) -> None:
        first, second, quick = (
            iter(DATA["a pair"]()),
            iter(DATA["names"]()),
            split.QuickNext(Guard(print)),
        )

        taken = [plain(quick(first)), plain(quick(second)), plain(quick(first))]

        again = iter(DATA["a pair"]())
        assert taken == [plain(next(again)), plain(next(iter(DATA["names"]()))), plain(next(again))]

    def test_keeps_no_iterator_nor_what_it_reads_from(self) -> None:
        """A generator behind it must end when Keras lets go of it."""
        ends = []

        def source() -> Any:
            try:
                while True:
                    yield ROWS, ROWS
            finally:
                ends.append("closed")

        iterator = iter_of(source)
        quick, alive = split.QuickNext(Guard(print)), weakref.ref(iterator)
        quick(iterator)
        del iterator
        gc.collect()

        assert alive() is None
        assert quick._fetch is None
        assert ends == ["closed"]

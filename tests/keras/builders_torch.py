"""Data in the forms that only torch has, or that are worth a form of their own there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from tests.keras.builders_keras import BATCH, rows_and_sums, small_model, tagger

# Of several threads each would wait for all, on cores that others use as well.
torch.set_num_threads(1)


class SlowRows(torch.utils.data.Dataset):  # type: ignore[misc]
    """A dataset that sleeps before each row, and notes when; with workers it notes nothing here."""

    def __init__(self, count: int, *, seconds: float = 0.0) -> None:
        self.rows, self.sums = rows_and_sums(count)
        self.seconds = seconds
        self.spans_ns: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if self.seconds:
            began_ns = time.monotonic_ns()
            time.sleep(self.seconds)
            self.spans_ns.append((began_ns, time.monotonic_ns()))
        return self.rows[index], self.sums[index]


class RowsThatEnd(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Rows without a known number; their end takes a while, too, and is noted."""

    def __init__(self, count: int, *, seconds_at_the_end: float = 0.0) -> None:
        self.rows, self.sums = rows_and_sums(count)
        self.seconds_at_the_end = seconds_at_the_end
        self.ends_ns: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        yield from zip(self.rows, self.sums, strict=True)
        began_ns = time.monotonic_ns()
        time.sleep(self.seconds_at_the_end)
        self.ends_ns.append((began_ns, time.monotonic_ns()))


def loader_of(dataset: Any, *, batch_size: int = BATCH, **settings: Any) -> Any:
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, **settings)


def fit_on(data: Any, *callbacks: Any, model: Any = None, **settings: Any) -> Any:
    model = model or small_model()
    model.fit(data, verbose=0, callbacks=[tagger(), *callbacks], **settings)
    return model

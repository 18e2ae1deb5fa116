"""Says from within a compiled step when it ran."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from trainer_hooks.examples.busy_spans import SpanNotes


class StepNoter:
    """Makes one busy span of two calls from within a compiled step.

    Both take NumPy arrays and hand the first back as it is: so a compiler can
    neither leave a call out nor move it. ``begin`` is to be given the batch,
    ``end`` the loss and something of every weight that the step updates.
    """

    def __init__(self, spans: SpanNotes) -> None:
        self._spans = spans
        self._began_ns = 0

    def begin(self, rows: Any) -> Any:
        """The batch is there and the compute begins."""
        self._began_ns = time.monotonic_ns()
        return np.asarray(rows)

    def end(self, loss: Any, *_: Any) -> Any:
        """The compute is done."""
        self._spans.note(self._began_ns, time.monotonic_ns())
        return np.asarray(loss, dtype=np.float32)

"""Says when the compute of a training really ran, from below any hook.

``gpumon serve --source follow:FILE`` takes these spans for the busy time of a
simulated GPU. They come from a wrapper around the compute itself, so that what
gpumon concludes can be held against what happened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

_Result = TypeVar("_Result")


class BusySpans:
    """Appends one JSON line for each stretch in which a GPU was busy."""

    def __init__(self, path: Path, gpu: int = 0) -> None:
        self._file = path.open("a", encoding="ascii", buffering=1)  # a line at a time
        self._gpu = gpu
        self.busy_ns = 0

    def __enter__(self) -> BusySpans:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def measure(self, compute: Callable[[], _Result]) -> _Result:
        """Run ``compute`` and note when it ran."""
        start_ns = time.monotonic_ns()
        result = compute()
        self.note(start_ns, time.monotonic_ns())
        return result

    def note(self, start_ns: int, end_ns: int) -> None:
        """Note that the GPU was busy between two instants of CLOCK_MONOTONIC."""
        self.busy_ns += end_ns - start_ns
        line = {"gpu": self._gpu, "start_ns": start_ns, "end_ns": end_ns}
        self._file.write(json.dumps(line) + "\n")

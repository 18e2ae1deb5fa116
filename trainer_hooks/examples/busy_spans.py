"""Record when a training run really computed, independently of any hook.

``gpumon serve --source follow:FILE`` takes these spans for the busy time of a simulated GPU. They
come from a wrapper around the compute itself, so that gpumon's results can be compared with them.
"""

from __future__ import annotations

import json
import os
import time
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

_Result = TypeVar("_Result")


Note = Callable[[int, int], None]
"""Receives the begin and end of a busy span, CLOCK_MONOTONIC nanoseconds."""

Through = Callable[..., Any]
"""In a step: calls its first argument, and returns its second.

A compiler can neither remove nor move the call: the step continues with its result, and it depends
on all further arguments.
"""


def unoccupied_seconds(
    waits_ns: Iterable[tuple[int, int]], busy_ns: Iterable[tuple[int, int]]
) -> float:
    """Return how long something was waited for while nothing was computed, in seconds.

    Spans may overlap, as those of threads do.

    >>> unoccupied_seconds([(0, 6), (4, 10)], [(8, 20), (0, 1)]) * 1e9
    7.0
    """
    computed = list(busy_ns)
    all_ns, computed_ns = (
        sum(end - start for start, end in united(spans_ns))
        for spans_ns in ([*waits_ns, *computed], computed)
    )
    return (all_ns - computed_ns) / 1e9


def imbalance_seconds(spans_ns: Sequence[Sequence[tuple[int, int]]]) -> list[float]:
    """Return how long each GPU was idle while another computed.

    >>> [seconds * 1e9 for seconds in imbalance_seconds([[(0, 6)], [(0, 10)]])]
    [4.0, 0.0]
    """
    return [
        unoccupied_seconds([span for other in spans_ns if other is not own for span in other], own)
        for own in spans_ns
    ]


def input_seconds(
    busy_ns: Iterable[tuple[int, int]], fetches_ns: Iterable[tuple[int, int]]
) -> float:
    """Return how long no GPU could compute because a batch was missing, in seconds.

    A fetch that is still running when the next step begins was for a later batch: it held up
    nothing.

    >>> input_seconds([(10, 20), (30, 40)], [(0, 5), (12, 27), (27, 50)]) * 1e9
    7.0
    """
    steps_ns = united(busy_ns)
    waited_ns = 0
    for start_ns, end_ns in fetches_ns:
        after = bisect(steps_ns, (end_ns, end_ns))
        if 0 < after < len(steps_ns):
            waited_ns += max(0, end_ns - max(start_ns, steps_ns[after - 1][1]))
    return waited_ns / 1e9


def united(spans_ns: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same time as sorted spans that do not overlap.

    >>> united([(4, 6), (0, 2), (1, 3)])
    [(0, 3), (4, 6)]
    """
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans_ns):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


class BusySpans:
    """Appends one JSON line per span in which a GPU was busy.

    Attributes:
        spans_ns: All spans so far, in CLOCK_MONOTONIC nanoseconds.
    """

    def __init__(self, path: Path, gpu: int = 0, *, names_process: bool = False) -> None:
        """``names_process``: the GPU's process list has this process, as a driver's would."""
        self._file = path.open("a", encoding="ascii", buffering=1)  # a line at a time
        self._gpu = gpu
        self._process = {"pid": os.getpid()} if names_process else {}
        self.spans_ns: list[tuple[int, int]] = []

    def __enter__(self) -> BusySpans:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def busy_ns(self) -> int:
        """Total busy time of the GPU, in nanoseconds."""
        return sum(end_ns - start_ns for start_ns, end_ns in self.spans_ns)

    def measure(self, compute: Callable[[], _Result]) -> _Result:
        start_ns = time.monotonic_ns()
        result = compute()
        self.note(start_ns, time.monotonic_ns())
        return result

    def sleep(self, seconds: float) -> None:
        """Be busy for that long, like a device, even if Python wakes up late."""
        start_ns = time.monotonic_ns()
        time.sleep(seconds)
        self.note(start_ns, start_ns + round(seconds * 1e9))

    def note(self, start_ns: int, end_ns: int) -> None:
        """Record that the GPU was busy between two times, CLOCK_MONOTONIC."""
        self.spans_ns.append((start_ns, end_ns))
        line = {"gpu": self._gpu, "start_ns": start_ns, "end_ns": end_ns, **self._process}
        self._file.write(json.dumps(line) + "\n")


class StepNoter:
    """Records from inside a compiled step when it ran, independently of any training loop or hook.

    Args:
        note: Receives each step's span.
        through: How the step's framework calls Python from inside it.
    """

    def __init__(self, note: Note, through: Through) -> None:
        self._note, self._through = note, through
        self._began_ns = 0

    def begin(self, rows: Any) -> Any:
        """Return the batch's rows: they are there, and the compute begins."""
        return self._through(self._begins, rows)

    def end(self, loss: Any, weights: Iterable[Any]) -> Any:
        """Return the loss, once the step has updated each of its weights."""
        return self._through(self._ends, loss, *weights)

    def _begins(self) -> None:
        self._began_ns = time.monotonic_ns()

    def _ends(self) -> None:
        self._note(self._began_ns, time.monotonic_ns())


def through_jax(call: Callable[[], None], value: Any, *after: Any) -> Any:
    """Call by a host callback in the compiled program, which JAX completes before it continues."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    def called(on_host: Any, *_: Any) -> Any:
        call()
        return np.asarray(on_host)

    touched = [jnp.ravel(each)[0] for each in after]
    shape = jax.ShapeDtypeStruct(value.shape, value.dtype)
    return jax.pure_callback(called, shape, value, *touched)


def through_tensorflow(call: Callable[[], None], value: Any, *after: Any) -> Any:
    """Call by a Python operation in the graph of the step."""
    import tensorflow as tf

    def called(on_host: Any, *_: Any) -> Any:
        call()
        return on_host

    # Reading a variable comes after what the step assigned to it.
    touched = [tf.reshape(each, [-1])[0] for each in after]
    passed = tf.numpy_function(called, [value, *touched], value.dtype)
    passed.set_shape(value.shape)
    return passed


def through_torch(call: Callable[[], None], value: Any, *_: Any) -> Any:
    """Call directly: on a CPU, torch computes eagerly."""
    call()
    return value

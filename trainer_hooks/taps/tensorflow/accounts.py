"""Attribute a running total inside a graph, read now and then, to executions. No TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

SPACING_NS: Final = 5_000_000
"""A reading costs some 20 us: this often, it is below half a percent of the run."""


class Totals(NamedTuple):
    """What the graph has summed since it was created.

    Attributes:
        wait_s: Time spent fetching batches, in seconds.
        batches: Batches fetched.
        rows: Samples in them, where known.
    """

    wait_s: float
    batches: int
    rows: int


class Execution(NamedTuple):
    """What is reported for one execution.

    Attributes:
        wait_ns: Wait for input inside it, at most its own length.
        steps: Batches it trained on.
        samples: Samples in them, or in earlier ones not reported yet.
    """

    wait_ns: int
    steps: int
    samples: int


class Accounts:
    """Reads the totals at most every ``SPACING_NS`` and spreads them evenly.

    A longer execution gets its own reading. Several shorter ones share one: their wait is
    attributed to as many that follow, so that no execution waits longer than it took.
    """

    def __init__(self, read: Callable[[], Totals], batches_an_execution: int) -> None:
        """Begin at the present totals."""
        self._read = read
        self._batches_an_execution = batches_an_execution
        self._before = self._base = read()
        self._read_at_ns = -SPACING_NS
        self._executions = 0  # since the last reading
        self._owed_ns = self._share_ns = 0
        self._batches = self._reported = 0
        self._samples = 0  # read, but not reported yet

    def executed(self, took_ns: int, now_ns: int) -> Execution:
        """Account for an execution that is over.

        Args:
            took_ns: Its length.
            now_ns: CLOCK_MONOTONIC at its end.
        """
        self._executions += 1
        self._batches += self._batches_an_execution
        samples = 0
        if now_ns - self._read_at_ns >= SPACING_NS:
            samples = self._samples + self._take_reading()
            self._samples = 0
            self._read_at_ns = now_ns
        wait_ns = min(self._owed_ns, self._share_ns, took_ns)
        self._owed_ns -= wait_ns
        steps = max(0, self._batches - self._reported)
        self._reported += steps
        return Execution(wait_ns, steps, samples)

    def found_nothing(self, took_ns: int) -> int:
        """Account for an execution that found no batch: its wait belongs to no other.

        Args:
            took_ns: Its length.

        Returns:
            Nanoseconds that it waited, at most its own length.
        """
        executions, samples = self._executions, self._take_reading()
        self._samples += samples
        wait_ns = min(self._owed_ns, took_ns)
        self._owed_ns -= wait_ns
        self._share_ns = -(-self._owed_ns // max(1, executions))
        return wait_ns

    def _take_reading(self) -> int:
        totals, before = self._read(), self._before
        self._before = totals
        self._owed_ns += max(0, round((totals.wait_s - before.wait_s) * 1e9))
        self._share_ns = -(-self._owed_ns // max(1, self._executions))
        self._executions = 0
        self._batches = totals.batches - self._base.batches
        return max(0, totals.rows - before.rows)

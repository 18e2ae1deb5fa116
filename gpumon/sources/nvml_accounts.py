"""What NVML's functions cost, and how they failed. Pure sums, which two threads may add to."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from gpumon.core.units import NS_PER_S
from gpumon.sources.nvml_codes import NO_ERROR, SUCCESS


class CallAccounts:
    """What the driver's functions cost and how they failed, over all openings of NVML.

    Two threads may call the driver at once: a sum that loses an addition would
    go back, which a counter must not.
    """

    def __init__(self) -> None:
        self._stopwatches: dict[str, list[int]] = {}
        self._errors: dict[tuple[str, int], int] = {}
        self._adding = threading.Lock()

    def stopwatch(self, name: str) -> list[int]:
        """Two numbers that add up, nanoseconds in a function and calls of it.

        Whoever adds to them by himself calls this function on one thread only.
        """
        return self._stopwatches.setdefault(name, [0, 0])

    def took(self, name: str, spent_ns: int, code: int = SUCCESS) -> None:
        """Count a call: how long it took, and, unless it is ``SUCCESS``, the error it was."""
        with self._adding:
            stopwatch = self.stopwatch(name)
            stopwatch[0] += spent_ns
            stopwatch[1] += 1
            if code != SUCCESS:
                self.failed(name, code)

    def failed(self, name: str, code: int) -> None:
        """Count an error of a call that is counted already."""
        self._errors[name, code] = self._errors.get((name, code), 0) + 1

    def failed_of(self, name: str, codes: Iterable[int]) -> None:
        """Count those of a row of codes that are errors."""
        with self._adding:
            for code in codes:
                if code not in NO_ERROR:
                    self.failed(name, code)

    def seconds(self) -> tuple[tuple[str, float], ...]:
        """Seconds spent inside each function so far."""
        # A list at once: another thread may add a function meanwhile.
        clocked = list(self._stopwatches.items())
        return tuple([(name, spent / NS_PER_S) for name, (spent, _) in clocked])

    def counts(self) -> tuple[tuple[str, int], ...]:
        """How often each function was called so far."""
        return tuple([(name, calls) for name, (_, calls) in list(self._stopwatches.items())])

    def errors(self) -> tuple[tuple[str, int, int], ...]:
        """How often each function answered with each code that is an error."""
        return tuple([(name, code, count) for (name, code), count in list(self._errors.items())])

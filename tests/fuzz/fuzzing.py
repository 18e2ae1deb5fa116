"""Fuzzing within a budget of seconds.

Each case draws from its own ``Random``, made from a seed and the number of the case. Runs of
seconds always have the same seed, runs of minutes a new one, and both print it.
``GPUMON_FUZZ_SEED=7`` repeats its cases, and ``GPUMON_FUZZ_SEED=7/41`` a single one.
"""

from __future__ import annotations

import gc
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

SEED_VARIABLE: Final = "GPUMON_FUZZ_SEED"
SECONDS_VARIABLE: Final = "GPUMON_FUZZ_SECONDS"
CI_SECONDS: Final = 3.0
CI_SEED: Final = "15"
SOAK_SECONDS: Final = 180.0


class Case:
    """One input.

    Attributes:
        random: The source of all its choices.
        folder: Of the test.
    """

    def __init__(self, seed: str, number: int, folder: Path) -> None:
        self.name = f"{seed}/{number}"
        self.random = Random(self.name)
        self.folder = folder
        self._input: bytes = b""

    def tries(self, data: bytes) -> bytes:
        """Note the input that is given to the program now."""
        self._input = data
        return data

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        """On an error, keep the input and show how to repeat the case."""
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also a hang
            kept = self.folder / "failing_input"
            kept.write_bytes(self._input)
            raise AssertionError(
                f"{type(error).__name__}: {error}\nthe input is in {kept}; "
                f"{SEED_VARIABLE}={self.name} repeats it"
            ) from error


class Fuzz:
    """Cases until the time is up.

    Args:
        folder: Where the input of a failing case is kept.
        budget_s: Seconds, unless ``$GPUMON_FUZZ_SECONDS`` is set.

    Attributes:
        spent: Share of the budget that is spent, 0 to 1.
        done: Number of cases so far.
    """

    def __init__(self, folder: Path, budget_s: float) -> None:
        seed, _, only = os.environ.get(SEED_VARIABLE, "").partition("/")
        self.seed = seed or (CI_SEED if budget_s <= CI_SECONDS else str(secrets.randbelow(1 << 32)))
        self._only = int(only) if only else None
        self._folder = folder
        self._budget_s = float(os.environ.get(SECONDS_VARIABLE, budget_s))
        self.spent = 0.0
        self.done = 0

    def cases(self) -> Iterator[Case]:
        """Yield at least one case."""
        print(f"{SEED_VARIABLE}={self.seed}")
        if self._only is not None:
            yield Case(self.seed, self._only, self._folder)
            return
        began_s = time.monotonic()
        while self.spent < 1.0:
            yield Case(self.seed, self.done, self._folder)
            self.done += 1
            self.spent = (time.monotonic() - began_s) / self._budget_s
        print(f"{self.done} cases in {self._budget_s:g} s")

    def run(self, act: Callable[[Case], object], growth: Growth) -> None:
        """Act on each case; the process must not grow once it is warm."""
        for case in self.cases():
            with case.repeatable():
                act(case)
            if self.spent > 0.3:
                growth.warm()


class Growth:
    """Whether a process grows once it is warm.

    Memory is the resident size; an allocator keeps some of what it frees, so a leak is more than
    some megabytes. Descriptors and threads are counted exactly.

    Args:
        pid: The process.
        most_kib: By how much its memory may grow after the warm-up.
    """

    def __init__(self, pid: int | str, *, most_kib: int) -> None:
        self._at = Path(f"/proc/{pid}")
        self._most_kib = most_kib
        self._warm_kib: int | None = None

    def warm(self) -> None:
        """End the warm-up. Later calls change nothing."""
        if self._warm_kib is None:
            self._warm_kib = self._resident_kib()

    def check(self) -> None:
        """Fail if it has grown."""
        now_kib = self._resident_kib()
        warm_kib = now_kib if self._warm_kib is None else self._warm_kib
        print(f"resident {warm_kib} -> {now_kib} KiB")
        assert now_kib - warm_kib < self._most_kib

    def _resident_kib(self) -> int:
        gc.collect()
        lines = (self._at / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    def descriptors(self) -> int:
        return sum(1 for _ in (self._at / "fd").iterdir())

    def threads(self) -> int:
        return sum(1 for _ in (self._at / "task").iterdir())


def fuzz_here(fuzz: Fuzz, act: Callable[[Case], object], *, most_kib: int) -> None:
    """Fuzz this process, whose memory may grow by ``most_kib``."""
    growth = Growth(os.getpid(), most_kib=most_kib)
    fuzz.run(act, growth)
    growth.check()


def for_seconds_and_minutes(ci_s: float = CI_SECONDS) -> pytest.MarkDecorator:
    """Run a test for ``seconds``, and for minutes in `make soak`."""
    minutes = pytest.param(SOAK_SECONDS, marks=pytest.mark.soak)
    return pytest.mark.parametrize("seconds", [ci_s, minutes])

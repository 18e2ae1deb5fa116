"""Fuzzing for a budget of seconds: one mechanism for whatever is fuzzed.

Each case draws from a ``Random`` of its own, made from the seed and the number of the case; the
seed is printed: runs of seconds have the same one each time, those of minutes a new one.
``GPUMON_FUZZ_SEED=7`` does the same cases again, ``GPUMON_FUZZ_SEED=7/41`` the
one that failed alone.
"""

from __future__ import annotations

import gc
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final

import pytest

SEED_VARIABLE: Final = "GPUMON_FUZZ_SEED"
SECONDS_VARIABLE: Final = "GPUMON_FUZZ_SECONDS"
CI_SECONDS: Final = 3.0
CI_SEED: Final = "15"
SOAK_SECONDS: Final = 180.0


class Case:
    """One input. Leaving it with an error keeps the input and says how to see it again.

    Attributes:
        random: What it is drawn from.
        folder: The test's; the input of a case that failed is kept there.
    """

    def __init__(self, seed: str, number: int, folder: Path) -> None:
        self.random = Random(f"{seed}/{number}")
        self.name = f"{seed}/{number}"
        self.folder = folder
        self._input: bytes = b""
        self._began_s = 0.0
        self.took_s = 0.0

    def tries(self, data: bytes) -> bytes:
        """Note what is given to the program now."""
        self._input = data
        return data

    def __enter__(self) -> Case:
        self._began_s = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.took_s = time.monotonic() - self._began_s
        if error is None or isinstance(error, KeyboardInterrupt):
            return
        kept = self.folder / "failing_input"
        kept.write_bytes(self._input)
        raise AssertionError(
            f"{type(error).__name__}: {error}\nthe input is kept in {kept}; "
            f"{SEED_VARIABLE}={self.name} makes it again"
        ) from error


class Fuzz:
    """Cases until the time is up.

    Args:
        folder: Where the input of a case that fails is kept.
        budget_s: Seconds; ``$GPUMON_FUZZ_SECONDS`` decides where it is set.
    """

    def __init__(self, folder: Path, budget_s: float) -> None:
        seed, _, only = os.environ.get(SEED_VARIABLE, "").partition("/")
        # A gate says the same twice; what no one has seen yet is looked for in the long runs.
        self.seed = seed or (CI_SEED if budget_s <= CI_SECONDS else str(secrets.randbelow(1 << 32)))
        self._only = int(only) if only else None
        self._folder = folder
        self._budget_s = float(os.environ.get(SECONDS_VARIABLE, budget_s))
        self.spent = 0.0
        """How much of the budget is spent, 0 to 1."""
        self.done = 0

    def cases(self) -> Iterator[Case]:
        """One after the other: at least one."""
        print(f"{SEED_VARIABLE}={self.seed}")
        if self._only is not None:
            yield Case(self.seed, self._only, self._folder)
            return
        began_s, slowest = time.monotonic(), (0.0, "")
        while self.spent < 1.0:
            case = Case(self.seed, self.done, self._folder)
            yield case
            slowest = max(slowest, (case.took_s, case.name))
            self.done += 1
            self.spent = (time.monotonic() - began_s) / self._budget_s
        print(f"{self.done} cases in {self._budget_s:g} s, {slowest[1]} took {slowest[0]:.2f} s")

    def run(self, act: Callable[[Case], object], growth: Growth) -> None:
        """Do so in each case; what does it holds no more at the end than once it was warm."""
        for case in self.cases():
            with case:
                act(case)
            if self.spent > 0.3:
                growth.warm()


class Growth:
    """Whether a process holds more at the end than once it was warm.

    Memory is what the kernel says is resident: an allocator keeps some of what it was given
    back, so a leak is what a bound of megabytes does not explain. Descriptors and threads are
    counted exactly.

    Args:
        pid: The process.
        most_kib: By so much its memory may grow after the warm-up.
    """

    def __init__(self, pid: int | str, *, most_kib: int) -> None:
        self._at = Path(f"/proc/{pid}")
        self._most_kib = most_kib
        self._warm_kib: int | None = None

    def warm(self) -> None:
        """From here on it may not grow. Later calls change nothing."""
        if self._warm_kib is None:
            gc.collect()
            self._warm_kib = self.resident_kib()

    def check(self) -> None:
        """Fail where it has grown."""
        gc.collect()
        now_kib = self.resident_kib()
        warm_kib = now_kib if self._warm_kib is None else self._warm_kib
        print(f"resident {warm_kib} -> {now_kib} KiB")
        assert now_kib - warm_kib < self._most_kib

    def resident_kib(self) -> int:
        """Memory it holds, KiB."""
        lines = (self._at / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    def descriptors(self) -> int:
        """Files and sockets it has open."""
        return sum(1 for _ in (self._at / "fd").iterdir())

    def threads(self) -> int:
        """Its threads."""
        return sum(1 for _ in (self._at / "task").iterdir())


def fuzz_here(fuzz: Fuzz, act: Callable[[Case], object], *, most_kib: int) -> None:
    """Do so in each case, in this process, whose memory may grow by so much."""
    growth = Growth(os.getpid(), most_kib=most_kib)
    fuzz.run(act, growth)
    growth.check()


def for_seconds_and_minutes(ci_s: float = CI_SECONDS) -> pytest.MarkDecorator:
    """A test for so many ``seconds``, and in `make soak` for minutes."""
    minutes = pytest.param(SOAK_SECONDS, marks=pytest.mark.soak)
    return pytest.mark.parametrize("seconds", [ci_s, minutes])

"""A process that keeps a GPU busy as it is told, and says when it really did.

    python3 tests/tools/board_capture/load_program.py PIPE DEVICE

Commands come from the pipe of that number, and answers go back. The device is cuda, or cpu to try
the program without a GPU. Needs PyTorch or JAX, and nothing of ours.

    {"number": 1, "do": "run", "kind": "small"}    until the next one; says when it has begun
    {"number": 2, "do": "wave", "busy_s": 0.7, "idle_s": 0.3, "seconds": 20}
    {"number": 3, "do": "steps", "seconds": 10}
    {"number": 4, "do": "profile", "busy_s": 0.3, "idle_s": 0.2, "seconds": 3}

Each answer carries its command's number.

All times are CLOCK_MONOTONIC nanoseconds: a span begins before its first kernel is launched
and ends when the device has said that its last one is done.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # this is run by its path

from tests.tools.board_capture.kernels import Kernels, find_kernels

_QUEUED: Final = 3
"""Launches that are under way at once: the device always has the next one waiting."""


class LoadProgram:
    """Obeys one command after the other, until its pipe is closed."""

    def __init__(self, kernels: Kernels, pipe: Connection) -> None:
        self._kernels, self._pipe = kernels, pipe

    def serve(self) -> None:
        """Obey until nobody asks any more."""
        self._pipe.send({"ready": self._kernels.name, "profiles": self._kernels.can_profile})
        with suppress(EOFError, OSError):
            while True:
                self._pipe.send(self._answer(self._pipe.recv()))

    def _answer(self, command: dict[str, Any]) -> dict[str, Any]:
        number = {"number": command["number"]}
        try:
            return {**number, **self._obey(command)}
        except Exception as error:  # noqa: BLE001 (whatever a framework raises is the answer)
            return {**number, "error": f"{type(error).__name__}: {error}"}

    def _obey(self, command: dict[str, Any]) -> dict[str, Any]:
        what = command["do"]
        if what == "run":
            self._kernels.launch(command["kind"])()
            self._pipe.send({"number": command["number"], "begun": what})
            self._busy(command["kind"], self._pipe.poll)
        elif what == "wave":
            return self._wave(command)
        elif what == "steps":
            return self._steps(command["seconds"])
        elif what == "profile":
            with self._kernels.profiled() as kernel_spans:
                said = self._wave(command)
            return {**said, "kernels": kernel_spans}
        return {"done": what}

    def _busy(self, kind: str, is_over: Callable[[], bool]) -> tuple[Any, Any]:
        """Launch until it is over, then wait for the device; its events before and after."""
        before = self._kernels.event()
        under_way: deque[Callable[[], None]] = deque()
        while not is_over():
            under_way.append(self._kernels.launch(kind))
            if len(under_way) >= _QUEUED:
                under_way.popleft()()
        after = self._kernels.event()
        while under_way:
            under_way.popleft()()
        return before, after

    def _wave(self, command: dict[str, Any]) -> dict[str, Any]:
        busy_ns, idle_ns = (round(command[key] * 1e9) for key in ("busy_s", "idle_s"))
        until_ns = time.monotonic_ns() + round(command["seconds"] * 1e9)
        spans, device_s = [], []
        while (start_ns := time.monotonic_ns()) < until_ns:
            before, after = self._busy("full", partial(_is_past, start_ns + busy_ns))
            end_ns = time.monotonic_ns()
            device_s.append(_seconds_between(before, after))
            spans.append((start_ns, end_ns))
            time.sleep(max(0, end_ns + idle_ns - time.monotonic_ns()) / 1e9)
        return {"spans": spans, "device_s": device_s}

    def _steps(self, seconds: float) -> dict[str, Any]:
        """Steps of many small launches and a wait: what a stalled submission hurts first."""
        began_ns = before_ns = time.monotonic_ns()
        until_ns, took_ms = began_ns + round(seconds * 1e9), []
        while before_ns < until_ns:
            self._kernels.step()
            now_ns = time.monotonic_ns()
            took_ms.append((now_ns - before_ns) / 1e6)
            before_ns = now_ns
        took_ms.sort()
        return {
            "steps": len(took_ms),
            "seconds": (before_ns - began_ns) / 1e9,
            "median_ms": statistics.median(took_ms),
            "p99_ms": took_ms[int(0.99 * (len(took_ms) - 1))],
            "worst_ms": took_ms[-1],
        }


def _seconds_between(before: Any, after: Any) -> float | None:
    """As the device itself has it, where it noted these two events."""
    if before is None:
        return None
    after.synchronize()
    return float(before.elapsed_time(after)) / 1000


def _is_past(moment_ns: int) -> bool:
    return time.monotonic_ns() >= moment_ns


def main(pipe: str, device: str) -> int:
    """Obey until the pipe is closed; 1 where there is nothing to compute with."""
    with Connection(int(pipe)) as answers:
        kernels, reasons = find_kernels(device)
        if kernels is None:
            answers.send({"error": "; ".join(reasons)})
            return 1
        LoadProgram(kernels, answers).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

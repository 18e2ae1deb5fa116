"""A process that keeps a GPU busy on command, and reports when it really did.

    python3 tests/tools/board_capture/load_program.py PIPE DEVICE

Commands come from the pipe of that number, and each has one answer, with its number. The device is
cuda, or cpu to try the program without a GPU. Needs PyTorch and no module of gpumon.

    {"number": 1, "do": "run", "kind": "small"}    until the next command; answers once it runs
    {"number": 2, "do": "nothing"}                 answers when nothing runs, or with an error
    {"number": 3, "do": "wave", "busy_s": 0.7, "idle_s": 0.3, "seconds": 20}
    {"number": 4, "do": "steps", "seconds": 10}

All times are CLOCK_MONOTONIC nanoseconds: a span begins before its first kernel is launched
and ends when the device has reported that its last one is done.
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
from typing import Any, Final

FULL_SIDE: Final = 8192
"""Of the matrices that fill the board: 1.1 TFLOP a product. Halved for a board that is slow."""
CPU_SIDE: Final = 256
_LONGEST_S: Final = 0.01
"""A product takes no longer: a wave ends only when what is under way is done."""
_SMALL_SIDE: Final = 64
_SMALL_IN_A_LAUNCH: Final = 200
_SMALL_IN_A_STEP: Final = 50
_QUEUED: Final = 3
"""Launches that are under way at once: the device always has the next one waiting."""

Wait = Callable[[], None]
"""Returns when the device is done with what was launched."""


class Kernels:
    """Products that fill the board, and sums that hardly use it."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch, self._device, self._is_on_gpu = torch, device, device == "cuda"
        self._kind, device_name = torch.float32, "the CPU"
        if self._is_on_gpu:
            is_old = torch.cuda.get_device_capability() < (8, 0)
            self._kind = torch.float16 if is_old else torch.bfloat16
            device_name = torch.cuda.get_device_name()
        self._small = torch.rand(_SMALL_SIDE, _SMALL_SIDE, device=device)
        side = self._fitting_side() if self._is_on_gpu else CPU_SIDE
        self._make(side)
        kind = str(self._kind).removeprefix("torch.")
        self.name = (
            f"torch {torch.__version__} on {device_name}, {side} x {side} products in {kind}"
        )
        for kernel in ("full", "small"):
            self.launch(kernel)()

    def _make(self, side: int) -> None:
        self._full = self._torch.rand(side, side, device=self._device).to(self._kind)
        self._out = self._torch.empty_like(self._full)

    def _fitting_side(self) -> int:
        """Return the longest side with which a product is fast enough."""
        side = FULL_SIDE
        while side > CPU_SIDE and self._time_of(side) > _LONGEST_S:
            side //= 2
        return side

    def _time_of(self, side: int) -> float:
        """Return the shortest of some runs: the first loads libraries, another may be late."""
        self._make(side)
        times_s = []
        for _ in range(4):
            began_s = time.monotonic()
            self.launch("full")()
            times_s.append(time.monotonic() - began_s)
        return min(times_s)

    def launch(self, kind: str, sums: int = _SMALL_IN_A_LAUNCH) -> Wait:
        """Launch ``"full"`` or ``"small"`` work, some ms of it."""
        if kind == "full":
            self._torch.matmul(self._full, self._full, out=self._out)
        else:
            for _ in range(sums):
                self._small.add_(1.0)
        done = self.event()
        return (lambda: None) if done is None else lambda: done.synchronize()

    def event(self) -> Any:
        """Record a time between two launches, on the device; ``None`` on the CPU."""
        if not self._is_on_gpu:
            return None
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class LoadProgram:
    """Executes one command after the other, until its pipe is closed."""

    def __init__(self, kernels: Kernels, pipe: Connection) -> None:
        self._kernels, self._pipe = kernels, pipe
        self._failed: dict[str, str] = {}

    def serve(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                command = self._pipe.recv()
                try:
                    printed = self._execute(command)
                except Exception as error:  # noqa: BLE001 (every error of a framework is reported)
                    printed = _error_answer(error)
                self._pipe.send({"number": command["number"], **printed})
                if command["do"] == "run" and "error" not in printed:
                    self._run(command["kind"])

    def _execute(self, command: dict[str, Any]) -> dict[str, Any]:
        what = command["do"]
        if what == "wave":
            return self._wave(command)
        if what == "steps":
            return self._steps(command["seconds"])
        if what == "run":
            self._kernels.launch(command["kind"])()
            return {}
        failed, self._failed = self._failed, {}
        return failed

    def _run(self, kind: str) -> None:
        try:
            self._busy(kind, self._pipe.poll)
        except Exception as error:  # noqa: BLE001 (reported by the next command)
            self._failed = _error_answer(error)

    def _busy(self, kind: str, is_over: Callable[[], bool]) -> tuple[Any, Any]:
        """Launch until it is over, then wait; return the device's events before and after."""
        before = self._kernels.event()
        under_way: deque[Wait] = deque()
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
        """Steps of many small launches and a wait, which a slow launch delays first."""
        began_ns = before_ns = time.monotonic_ns()
        until_ns, steps_ms = began_ns + round(seconds * 1e9), []
        while before_ns < until_ns:
            self._kernels.launch("small", _SMALL_IN_A_STEP)()
            now_ns = time.monotonic_ns()
            steps_ms.append((now_ns - before_ns) / 1e6)
            before_ns = now_ns
        steps_ms.sort()
        return {
            "steps": len(steps_ms),
            "seconds": (before_ns - began_ns) / 1e9,
            "median_ms": statistics.median(steps_ms),
            "p99_ms": steps_ms[int(0.99 * (len(steps_ms) - 1))],
            "worst_ms": steps_ms[-1],
        }


def _error_answer(error: Exception) -> dict[str, str]:
    return {"error": f"{type(error).__name__}: {error}"}


def _seconds_between(before: Any, after: Any) -> float | None:
    """The time between two events, measured by the device."""
    if before is None:
        return None
    after.synchronize()
    return float(before.elapsed_time(after)) / 1000


def _is_past(time_ns: int) -> bool:
    return time.monotonic_ns() >= time_ns


def main(pipe: str, device: str) -> int:
    """Execute commands until the pipe is closed; return 1 if nothing can compute."""
    with Connection(int(pipe)) as answers:
        try:
            kernels = Kernels(device)
        except Exception as error:  # noqa: BLE001 (not installed, or it does not see the board)
            answers.send({"number": 0, **_error_answer(error)})
            return 1
        answers.send({"number": 0, "ready": kernels.name})
        LoadProgram(kernels, answers).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The load: a child process that computes, or reports why it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final

_PROGRAM: Final = Path(__file__).with_name("load_program.py")
_START_S: Final = 120.0
"""The first product on a fresh machine reads gigabytes of libraries."""
_SLACK_S: Final = 60.0
_STDERR: Final = 2
"""Where all goes that libraries print."""


class LoadError(Exception):
    """Why the load cannot compute, as a sentence."""


class Load:
    """A child process that keeps one GPU busy with PyTorch.

    ``run`` starts ``"full"`` or ``"small"`` kernels, which ``stop`` ends; a command of ``begin``
    ends by itself, and ``result`` waits for that.

    Raises:
        LoadError: It cannot compute on that GPU.
    """

    def __init__(self, *, gpu_uuid: str | None, device: str = "cuda") -> None:
        """Start it on one GPU, or on the CPU to try the program, and wait for its first product."""
        visible = {} if gpu_uuid is None else {"CUDA_VISIBLE_DEVICES": gpu_uuid}
        self._pipe, its_end = Pipe()
        with its_end:
            self._child = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(its_end.fileno()), device],
                pass_fds=[its_end.fileno()], stdin=subprocess.DEVNULL, stdout=_STDERR,
                env={**os.environ, **visible},
            )  # fmt: skip
        self._patience_s, self._number = _START_S, 0
        try:
            self.name = self.result()["ready"]
        except LoadError:
            self.close()
            raise

    def run(self, kind: str) -> None:
        self.begin({"do": "run", "kind": kind})
        self.result()  # it has begun

    def stop(self) -> None:
        self.begin({"do": "nothing"})
        self.result()

    def begin(self, command: dict[str, Any]) -> None:
        self._patience_s = float(command.get("seconds", 0.0)) + _SLACK_S
        self._number += 1
        try:
            self._pipe.send({**command, "number": self._number})
        except OSError as error:
            raise LoadError("the process that computes has ended") from error

    def result(self) -> dict[str, Any]:
        """Wait for the answer to the newest command; skip older ones."""
        while True:
            if not self._pipe.poll(self._patience_s):
                raise LoadError(
                    f"the process that computes was silent for {self._patience_s:.0f} s"
                )
            try:
                answer: dict[str, Any] = self._pipe.recv()
            except (EOFError, OSError) as error:
                raise LoadError("the process that computes has ended") from error
            if answer["number"] == self._number:
                break
        if "error" in answer:
            raise LoadError(answer["error"])
        return answer

    def close(self) -> None:
        self._pipe.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

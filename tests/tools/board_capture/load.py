"""The load, as the capture sees it: a child process that computes, or says why it cannot."""

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
    """Why the load cannot do what it was reported, as a sentence."""


class Load:
    """A process of its own, which keeps one GPU busy with PyTorch as it is reported.

    It runs ``"full"`` or ``"small"`` kernels from now on until it is to stop; what is begun by a
    command ends by itself, and its result is waited for.

    Attributes:
        name: What computes, for people.

    Raises:
        LoadError: It cannot compute on that GPU.
    """

    def __init__(self, *, gpu_uuid: str | None, device: str = "cuda") -> None:
        """Start it, and wait until it has computed once.

        Args:
            gpu_uuid: The only GPU that it sees; ``None``: whichever it finds.
            device: ``"cuda"``, or ``"cpu"`` to try the program without a GPU.
        """
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
        """The answer to the newest command; what earlier ones left unread is passed over."""
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

"""The load, as the capture sees it: a child process that computes, or says why it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final, Protocol

_PROGRAM: Final = Path(__file__).with_name("load_program.py")
_START_S: Final = 120.0
"""The first product on a fresh machine compiles, and reads gigabytes of libraries."""
_SLACK_S: Final = 60.0
_STDERR: Final = 2
"""Where all goes that libraries print."""


class LoadError(Exception):
    """Why the load cannot do what it was told, as a sentence."""


class Load(Protocol):
    """Something that keeps one GPU busy as it is told.

    It runs ``"full"`` or ``"small"`` kernels from now on until it is to stop; what is begun by a
    command ends by itself, and its result is waited for.

    Attributes:
        name: What computes, for people.
        can_profile: Whether it can tell when each kernel ran.
    """

    name: str
    can_profile: bool

    def run(self, kind: str) -> None: ...
    def stop(self) -> None: ...
    def begin(self, command: dict[str, Any]) -> None: ...
    def result(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


class ChildLoad:
    """A process of its own, which computes with PyTorch or JAX.

    Raises:
        LoadError: Neither can compute on that GPU.
    """

    def __init__(self, *, gpu_uuid: str | None, device: str = "cuda") -> None:
        """Start it, and wait until it has computed once.

        Args:
            gpu_uuid: The only GPU that it sees; ``None``: whichever it finds.
            device: ``"cuda"``, or ``"cpu"`` to try the program without a GPU.
        """
        environ = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if gpu_uuid is not None:
            environ["CUDA_VISIBLE_DEVICES"] = gpu_uuid
        self._pipe, its_end = Pipe()
        with its_end:
            self._child = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(its_end.fileno()), device],
                pass_fds=[its_end.fileno()], stdin=subprocess.DEVNULL, stdout=_STDERR, env=environ,
            )  # fmt: skip
        self._seconds, self._number = 0.0, 0
        try:
            ready = self._answer(_START_S)
        except LoadError:
            self.close()
            raise
        self.name, self.can_profile = ready["ready"], bool(ready["profiles"])

    def run(self, kind: str) -> None:
        self.begin({"do": "run", "kind": kind})
        self._answer(_SLACK_S)  # it has begun

    def stop(self) -> None:
        ran = self._number
        self.begin({"do": "nothing"})
        self._answer(_SLACK_S, since=ran)

    def begin(self, command: dict[str, Any]) -> None:
        self._seconds = float(command.get("seconds", 0.0))
        self._number += 1
        try:
            self._pipe.send({**command, "number": self._number})
        except OSError as error:
            raise LoadError("the process that computes has ended") from error

    def result(self) -> dict[str, Any]:
        return self._answer(self._seconds + _SLACK_S)

    def close(self) -> None:
        self._pipe.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _answer(self, patience_s: float, *, since: int | None = None) -> dict[str, Any]:
        """The next answer to the newest command; what earlier ones left unread is passed over.

        Args:
            patience_s: How long it may take.
            since: The number of an earlier command whose trouble counts, too.
        """
        until_s, trouble = time.monotonic() + patience_s, None
        first = self._number if since is None else since
        while True:
            answer = self._next(until_s, patience_s)
            number = answer.get("number", 0)
            if number >= first and "error" in answer:
                trouble = str(answer["error"])
            if number == self._number:
                break
        if trouble is not None:
            raise LoadError(trouble)
        return answer

    def _next(self, until_s: float, patience_s: float) -> dict[str, Any]:
        if not self._pipe.poll(max(0.0, until_s - time.monotonic())):
            raise LoadError(f"the process that computes was silent for {patience_s:.0f} s")
        try:
            answer: dict[str, Any] = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise LoadError("the process that computes has ended") from error
        return answer

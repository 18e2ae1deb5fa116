"""A real ``gpumon serve`` for a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.waiting import PATIENCE_S, wait_until
from trainer_hooks.examples.busy_spans import BusySpans

if TYPE_CHECKING:
    from typing_extensions import Self

SETTLES_AFTER_S = 2.0
"""By then everything is reported: a simulated GPU waits up to 1 s for lines of its file, a driver's
window lasts 1/6 s, and the tests' daemons tick every 0.5 s.
"""
LONG_STEP_S = 4.0


class RunningDaemon:
    """``gpumon serve`` with its own runtime folder, for as long as the ``with`` block."""

    process: subprocess.Popen[bytes]
    settles_after_s = SETTLES_AFTER_S

    def __init__(
        self,
        folder: Path,
        *args: str,
        environ: Mapping[str, str] | None = None,
        runtime_dir: Path | None = None,
        ready: bool = True,
        prefix: Sequence[str] = (),
    ) -> None:
        """``prefix``: a command that becomes the daemon."""
        self.folder = folder
        self.runtime_dir = runtime_dir or folder / "run"
        self._address = ""
        self.environ = {
            # Without GPUMON_ variables of this process: each is an option of the daemon.
            **{name: text for name, text in os.environ.items() if not name.startswith("GPUMON_")},
            "GPUMON_RUNTIME_DIR": str(self.runtime_dir),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONUNBUFFERED": "1",
            **(environ or {}),
        }
        is_given = "--listen" in args or "GPUMON_LISTEN" in self.environ
        listen = () if is_given else ("--listen", "127.0.0.1:0")
        self._args = (*args, *listen)
        self._wait_for_state = ready
        self._prefix = prefix

    def __enter__(self) -> Self:
        with (self.folder / "daemon.log").open("w+") as log:
            self.process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", "gpumon", "serve", *self._args],
                env=self.environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            if self._wait_for_state:
                wait_until(lambda: self.state_file.exists() or self.process.poll() is not None)
                assert self.process.poll() is None, self.log()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)

    @property
    def state_file(self) -> Path:
        return self.runtime_dir / "state.json"

    @property
    def address(self) -> str:
        """Where it serves; kept, because its state may be gone later."""
        self._address = self._address or str(self.state()["address"])
        return self._address

    def thread_count(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()

    def state(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.state_file.read_bytes())
        return document

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of one request."""
        try:
            with urllib.request.urlopen(
                f"http://{self.address}{path}", timeout=PATIENCE_S
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> dict[str, float]:
        """Every series of ``/metrics``, by its name with labels."""
        lines = self.get("/metrics")[1].splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.get("/api/v1/report")[1])
        return document

    def settled_report(self, patience_s: float = 30.0) -> dict[str, Any]:
        """The report once it contains everything until now, and nothing is pending."""
        observed_s = self.report()["gpus"][0]["observed_seconds"]

        def is_settled() -> bool:
            gpus = self.report()["gpus"]
            later_s: float = gpus[0]["observed_seconds"] - observed_s
            return later_s > self.settles_after_s and not any(
                gpu["pending_seconds"] for gpu in gpus
            )

        wait_until(is_settled, patience_s)
        return self.report()

    def wait_for(self, met: Any, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The first state that meets a condition."""
        found: list[dict[str, Any]] = []

        def is_found() -> bool:
            state = self.state()
            if met(state):
                found.append(state)
            return bool(found)

        wait_until(is_found, patience_s)
        return found[0]


class FollowingDaemon(RunningDaemon):
    """A daemon that follows the spans of training runs, whose steps a busy machine may delay.

    In a file without spans so far, the daemon takes the begin of a span above a second for idle
    time. So each GPU has one of ``LONG_STEP_S`` before the daemon starts.
    """

    settles_after_s = SETTLES_AFTER_S + 1.25 * LONG_STEP_S

    def __init__(self, folder: Path, *args: str, gpus: int = 1) -> None:
        self.spans = folder / "busy.jsonl"
        end_ns = time.monotonic_ns()
        for gpu in range(gpus):
            with BusySpans(self.spans, gpu) as spans:
                spans.note(end_ns - int(LONG_STEP_S * 1e9), end_ns)
        super().__init__(folder, "--source", f"follow:{self.spans}", "--period", "0.5", *args)

"""A program on a terminal of tmux, which shows what a user would see."""

from __future__ import annotations

import re
import shlex
import subprocess
import uuid
from collections.abc import Mapping, Sequence

import psutil

from tests.needs import needed
from tests.waiting import PATIENCE_S, until


class Tmux:
    """One program in a window of its own. Ends when left."""

    def __init__(
        self, words: Sequence[str], environ: Mapping[str, str], columns: int, lines: int
    ) -> None:
        self._tmux = [needed("tmux"), "-L", f"gpumon-{uuid.uuid4().hex}", "-f", "/dev/null"]
        command = f"{shlex.join(words)}; echo ended with $?; sleep 100"
        size = ("-x", str(columns), "-y", str(lines))
        subprocess.run(
            [*self._tmux, "new-session", "-d", *size, command], env=dict(environ), check=True
        )

    def __enter__(self) -> Tmux:
        return self

    def __exit__(self, *_: object) -> None:
        started = self._processes()
        subprocess.run([*self._tmux, "kill-server"], check=False)
        left = psutil.wait_procs(started, PATIENCE_S)[1]
        for process in left:
            process.kill()
        assert not left, "they survived their terminal"

    def press(self, *keys: str) -> None:
        """Send keys, by their names in tmux."""
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal."""
        size = ("-x", str(columns), "-y", str(lines))
        subprocess.run([*self._tmux, "resize-window", *size], check=True)

    def pid_of(self, words: str) -> int:
        """The process whose command line has these words."""
        for process in self._processes():
            if words in " ".join(process.cmdline()):
                return process.pid
        raise AssertionError(f"no {words}:\n{self.screen}")

    def _processes(self) -> list[psutil.Process]:
        shell = int(self._asked("list-panes", "-F", "#{pane_pid}"))
        return psutil.Process(shell).children(recursive=True)

    @property
    def screen(self) -> str:
        """What it shows now."""
        return self._asked("capture-pane", "-p")

    def _asked(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def wait_for(self, pattern: str) -> str:
        """The screen, once it has this."""
        assert until(lambda: self.has(pattern), every_s=0.1), f"no {pattern}:\n{self.screen}"
        return self.screen

    def has(self, pattern: str) -> bool:
        """Whether the screen has this now."""
        return re.search(pattern, self.screen, re.MULTILINE) is not None

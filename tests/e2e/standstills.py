"""Training runs that stand still, in one way each, beside one that works, under one real daemon."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.daemon import FollowingDaemon
from tests.processes import ending

PROGRAM: Final = Path(__file__).with_name("steady_training.py")
KINDS: Final = (
    "steady",
    "hangs",
    "stops:input_wait",
    "stops:train_step",
    "stops:other",
    "epochs",
    "evaluates",
    "scribbles",
)
"""By the number of its GPU."""
HURRY: Final = 15
"""Rules of that many seconds are of one."""


class Standstills:
    """The daemon, and the processes of the training runs by kind."""

    def __init__(
        self, daemon: FollowingDaemon, processes: dict[str, subprocess.Popen[bytes]]
    ) -> None:
        self.daemon, self.processes = daemon, processes

    def gpu(self, kind: str) -> dict[str, Any]:
        """What the report has on the GPU of that training run."""
        found: dict[str, Any] = self.daemon.report()["gpus"][KINDS.index(kind)]
        return found

    def text(self, kind: str) -> str:
        """The printed report on that training run alone, in one line."""
        words = (sys.executable, "-m", "gpumon", "report", "--run", kind.replace(":", "-"))
        printed = subprocess.run(
            words, env=self.daemon.environ, capture_output=True, text=True, check=True
        )
        return " ".join(printed.stdout.split())


@contextmanager
def standing_still(folder: Path) -> Iterator[Standstills]:
    """All of them at once, for as long as the block."""
    with FollowingDaemon(folder, gpus=len(KINDS)) as daemon, ExitStack() as stack:
        processes = {}
        for gpu, kind in enumerate(KINDS):
            environ = {"GPUMON_GPUS": str(gpu), "GPUMON_RUN": kind.replace(":", "-")}
            words = (sys.executable, str(PROGRAM), str(daemon.spans), str(gpu), kind)
            process = subprocess.Popen(words, env={**daemon.environ, **environ})
            processes[kind] = stack.enter_context(ending(process))
        yield Standstills(daemon, processes)


def hurried(rules: str) -> str:
    """Prometheus rules in which every minute, hour and day passes so much faster."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[1]) * {"m": 60, "h": 3600, "d": 86_400}[found[2]]
        return f"{seconds // HURRY}s"

    return re.sub(r"(?<=[\[ :])(\d+)([mhd])(?=[\]\s)]|$)", shorter, rules, flags=re.MULTILINE)

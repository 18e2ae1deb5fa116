"""A real daemon that calls a training run hanging after seconds instead of minutes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.daemon import FollowingDaemon
from tests.processes import ending

ROOT: Final = Path(__file__).resolve().parents[2]
HANGS_AFTER_S: Final = 8
FIRST_BATCH_HANGS_AFTER_S: Final = 8
_HURRY: Final = f"""
from gpumon.core.settings.detector import DEFAULT_SETTINGS
object.__setattr__(DEFAULT_SETTINGS.hang, "min_ns", {HANGS_AFTER_S} * 10**9)
object.__setattr__(DEFAULT_SETTINGS.hang, "first_batch_ns", {FIRST_BATCH_HANGS_AFTER_S} * 10**9)
"""
"""The daemon's interpreter runs this first, because no option changes these settings."""


class HurriedDaemon(FollowingDaemon):
    """A ``FollowingDaemon`` with shorter limits for hanging runs."""

    def __init__(self, folder: Path, *, gpus: int) -> None:
        super().__init__(folder, gpus=gpus)
        hurry = folder / "hurry"
        hurry.mkdir()
        (hurry / "sitecustomize.py").write_text(_HURRY, encoding="utf-8")
        self.environ["PYTHONPATH"] = f"{hurry}:{ROOT}"


def started_training(
    daemon: FollowingDaemon, program: Path, run: str, gpu: int, *words: str, **environ: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run ``python PROGRAM SPANS GPU WORDS`` as a named run on a GPU, for as long as the block."""
    variables = {
        **daemon.environ,
        "PYTHONPATH": str(ROOT),
        "GPUMON_GPUS": str(gpu),
        "GPUMON_RUN": run,
        **environ,
    }
    process = subprocess.Popen(
        [sys.executable, str(program), str(daemon.spans), str(gpu), *words],
        env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return ending(process)

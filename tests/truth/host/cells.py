"""One run under one condition, beside a daemon; its report compared with the truth."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.phase import IdleCause
from tests.daemon import RunningDaemon
from tests.patience import wait_until
from tests.truth.host.conditions import CONDITIONS, LOADERS, Condition, Loader
from tests.truth.host.surroundings import (
    NotHereError,
    busy_neighbour,
    little_memory,
    must_read_from_a_device,
)
from tests.truth.host.work import Stage

ROOT: Final = Path(__file__).parents[3]
UNKNOWN, GIL_BOUND = "unknown", "gil_bound"
_SETTLES_AFTER_S: Final = 3.0
"""As for the other daemons of the tests, which sample twice a second."""
_PATIENCE_S: Final = 120.0
"""Time for a run beyond its own seconds: frameworks are slow to start."""
_FLAGS_OF_READS: Final = {
    "read directly": os.O_DIRECT,
    "read directly at random": os.O_DIRECT,
    "read": 0,
    "map": 0,
    "map again and again": 0,
}
"""Flags with which the file is opened, by the work that needs it cold."""


class Cell(NamedTuple):
    """A condition, the loader through which it is tried, and whether the machine is shared."""

    condition: str
    loader: str
    has_neighbour: bool = False

    def __str__(self) -> str:
        beside = ", beside a busy neighbour" if self.has_neighbour else ""
        return f"{self.condition}, {self.loader}{beside}"


class Reported(NamedTuple):
    """What a daemon reported of a cell, in seconds.

    Attributes:
        idle_s: True idle time of the GPU, measured below all hooks.
        right_s: Reported loss with a true reason.
        wrong_s: Reported loss with a wrong reason.
        unknown_s: Reported loss without a reason.
        by_reason: Reported loss by reason.
    """

    idle_s: float
    right_s: float
    wrong_s: float
    unknown_s: float
    by_reason: Mapping[str, float]

    @property
    def lost_s(self) -> float:
        return self.right_s + self.wrong_s + self.unknown_s


def all_cells() -> Iterator[Cell]:
    """Every condition through each of its loaders, quiet and beside a neighbour."""
    for name, condition in CONDITIONS.items():
        for loader in condition.loaders:
            for has_neighbour in (False, True):
                yield Cell(name, loader, has_neighbour)


def reported_of(cell: Cell, stage: Stage, folder: Path, seconds: float) -> Reported:
    """Train under a cell's condition, and fetch the daemon's report.

    Args:
        cell: The condition and loader.
        stage: The cold file and the slow server.
        folder: Empty folder for the daemon.
        seconds: Time from the first step to the last.

    Raises:
        NotHereError: This machine cannot; says why.
    """
    condition, loader = CONDITIONS[cell.condition], LOADERS[cell.loader]
    python = _python_of(loader)
    spans = folder / "busy.jsonl"
    words = [
        str(python), "-m", "tests.truth.host.training",
        "--condition", cell.condition, "--loader", cell.loader, "--seconds", str(seconds),
        "--spans", str(spans), "--file", str(stage.file), "--port", str(stage.port),
    ]  # fmt: skip
    with ExitStack() as around:
        words += _surrounded(condition, stage, around)
        if cell.has_neighbour:
            around.enter_context(busy_neighbour())
        daemon = around.enter_context(RunningDaemon(folder, "--source", f"follow:{spans}"))
        daemon.settles_after_s = _SETTLES_AFTER_S
        environ = {**daemon.environ, "GPUMON_GPUS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
        environ["PYTHONPATH"], environ["KERAS_BACKEND"] = str(ROOT), loader.framework
        with group_of(words, environ, folder / "training.log") as training:
            wait_until(
                lambda: _has_begun(spans) or training.poll() is not None, patience_s=_PATIENCE_S
            )
            output, _ = training.communicate(timeout=seconds + _PATIENCE_S)
        if training.returncode != 0:
            log = (folder / "training.log").read_text(encoding="utf-8")
            raise RuntimeError(f"{cell}: the training failed:\n{log}")
        gpu = daemon.settled_report(patience_s=60)["gpus"][0]
    return diagnosed(condition, gpu, json.loads(output.splitlines()[-1])["idle_s"])


def diagnosed(condition: Condition, gpu: Mapping[str, Any], idle_s: float) -> Reported:
    """Sum up the reasons in a report: of waits, and if the GIL is held, of steps.

    The GIL within steps is a wrong reason if no thread holds it.
    """
    of_waits = _by_reason(gpu, IdleCause.INPUT_WAIT, "input_wait_by_reason")
    of_steps = _by_reason(gpu, IdleCause.WITHIN_STEP, "within_step_by_reason")
    if GIL_BOUND not in condition.right:
        of_steps = {GIL_BOUND: of_steps.get(GIL_BOUND, 0.0)}
    by_reason: Counter[str] = Counter(of_waits)
    by_reason.update(of_steps)
    right_s = sum(by_reason[reason] for reason in condition.right)
    unknown_s = by_reason[UNKNOWN] if UNKNOWN not in condition.right else 0.0
    wrong_s = sum(by_reason[reason] for reason in by_reason.keys() - {*condition.right, UNKNOWN})
    return Reported(idle_s, right_s, wrong_s, unknown_s, +by_reason)


def _by_reason(gpu: Mapping[str, Any], cause: IdleCause, name: str) -> dict[str, float]:
    """Seconds of a cause by reason; the rest is unknown."""
    given: Mapping[str, float] = gpu.get(name, {})
    lost_s: float = gpu["idle_by_cause"].get(cause.value, 0.0)
    rest_s = lost_s - sum(given.values())
    return {**given, UNKNOWN: given.get(UNKNOWN, 0.0) + rest_s}


def together(results: Iterable[Reported]) -> Reported:
    """The sum of several runs."""
    idle_s = right_s = wrong_s = unknown_s = 0.0
    by_reason: Counter[str] = Counter()
    for run in results:
        idle_s, right_s = idle_s + run.idle_s, right_s + run.right_s
        wrong_s, unknown_s = wrong_s + run.wrong_s, unknown_s + run.unknown_s
        by_reason.update(run.by_reason)
    return Reported(idle_s, right_s, wrong_s, unknown_s, by_reason)


def _surrounded(condition: Condition, stage: Stage, around: ExitStack) -> list[str]:
    """Provide what the work needs; return arguments for the training script."""
    flags = _FLAGS_OF_READS.get(condition.work)
    if flags is not None:
        must_read_from_a_device(stage.file, flags)
    if condition.work == "map again and again":
        return ["--cgroup", str(around.enter_context(little_memory()))]
    return []


def _has_begun(spans: Path) -> bool:
    return spans.is_file() and spans.stat().st_size > 0


def _python_of(loader: Loader) -> Path:
    if not loader.framework:
        return Path(sys.executable)
    python = ROOT / f".venv-{loader.framework}" / "bin" / "python"
    if not python.exists():
        raise NotHereError(
            f"there is no .venv-{loader.framework}: make test-{loader.framework} makes it"
        )
    return python


@contextmanager
def group_of(
    words: list[str], environ: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[str]]:
    """A process in its own group, which is killed at the end."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

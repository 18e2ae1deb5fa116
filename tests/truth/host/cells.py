"""One run under one condition, watched by a daemon; its report compared with the truth."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.phase import IdleCause
from tests.daemon import RunningDaemon
from tests.truth.host.conditions import CONDITIONS, LOADERS, Condition
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
        neighbour = ", with a busy neighbour" if self.has_neighbour else ""
        return f"{self.condition}, {self.loader}{neighbour}"


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
    """Every condition with each of its loaders, with and without a busy neighbour."""
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
        NotHereError: This machine cannot.
    """
    condition, loader = CONDITIONS[cell.condition], LOADERS[cell.loader]
    arguments = [
        "-m", "tests.truth.host.training",
        "--condition", cell.condition, "--loader", cell.loader, "--seconds", str(seconds),
        *stage.arguments,
    ]  # fmt: skip
    with ExitStack() as around:
        arguments += _surrounded(condition, stage, around)
        if cell.has_neighbour:
            around.enter_context(busy_neighbour())
        output, report = trained(
            [str(python_of(loader.framework)), *arguments], folder,
            timeout_s=seconds + _PATIENCE_S, KERAS_BACKEND=loader.framework,
        )  # fmt: skip
    return diagnosed(condition, report["gpus"][0], json.loads(output.splitlines()[-1])["idle_s"])


def trained(
    command: list[str], folder: Path, *, timeout_s: float, **environ: str
) -> tuple[str, dict[str, Any]]:
    """Run a training script, watched by a daemon; its output and the daemon's report.

    Args:
        command: The script, which writes its busy spans to the file of ``--spans``.
        folder: Empty folder for the daemon and the spans.
        timeout_s: How long the script may take.
        environ: More variables of the script.
    """
    spans, log = folder / "busy.jsonl", folder / "training.log"
    with RunningDaemon(folder, "--source", f"follow:{spans}") as daemon:
        daemon.settles_after_s = _SETTLES_AFTER_S
        variables = {**daemon.environ, "GPUMON_GPUS": "0", "PYTHONPATH": str(ROOT)}
        variables |= {"TF_CPP_MIN_LOG_LEVEL": "3", **environ}
        with log.open("w") as errors:
            process = subprocess.Popen(
                [*command, "--spans", str(spans)], cwd=ROOT, env=variables, text=True,
                stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all its workers
            process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{command} failed:\n{log.read_text(encoding='utf-8')}")
        return output, daemon.settled_report(patience_s=60)


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


def python_of(framework: str) -> Path:
    """The interpreter with a framework; without one, this interpreter."""
    if not framework:
        return Path(sys.executable)
    python = ROOT / f".venv-{framework}" / "bin" / "python"
    if not python.exists():
        raise NotHereError(f"there is no .venv-{framework}: make test-{framework} makes it")
    return python

"""How each tool is started on the torch loop, and what it says of it afterwards."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rivals.environments import GPUPROF, ROOT, TRACEML, has_rival, rivals_python
from tests.daemon import RunningDaemon
from tests.waiting import wait_until

SCRIPT = ROOT / "benchmarks" / "rivals" / "torch_training.py"
PINNED = {"traceml": TRACEML, "gpuprof": GPUPROF}
TOOLS = ("bare", "gpumon", "traceml", "gpuprof")
NOTHING, UNKNOWN, SILENT = "none", "within_step", "no answer"


class ToolOutput(NamedTuple):
    """What a tool made of a training run.

    Attributes:
        words: Its verdict, quoted.
        cause: What that names, in gpumon's words for causes; ``none``: all is
            well, or the model's own compute is what there is to better.
        steps: Steps that it counted.
        lost_s: Seconds lost to the cause, where it says seconds.
    """

    words: str
    cause: str
    steps: int | None
    lost_s: float | None = None


def is_there(tool: str) -> bool:
    """Whether a tool, in its pinned version, can be run."""
    return tool not in PINNED or has_rival(PINNED[tool])


def words_for(
    tool: str, training_words: list[str], folder: Path, script: Path = SCRIPT
) -> list[str]:
    """The command that trains under a tool."""
    python = rivals_python()
    if tool != "traceml":
        return [str(python), str(script), "--tool", tool, *training_words]
    ports = [str(_free_port()) for _ in range(2)]
    return [
        str(python.with_name("traceml")), "run", str(script), "--logs-dir", str(folder / "logs"),
        "--run-name", "run", "--master-port", ports[0], "--aggregator-port", ports[1],
        "--args", "--tool", tool, *training_words,
    ]  # fmt: skip


def environ_for(folder: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a training run: it finds gpumon's hooks here, and a runtime folder."""
    return {
        **base,
        "PYTHONPATH": str(ROOT),
        "GPUMON_RUNTIME_DIR": str(folder / "run"),
        "GPUMON_GPUS": "0",
        "GPUMON_RUN": "training",
    }


def traceml_output(folder: Path) -> ToolOutput:
    """From the summary next to its logs."""
    path = folder / "logs" / "run" / "final_summary.txt"
    if not path.exists():
        return ToolOutput("(no summary)", SILENT, None)
    text = path.read_text(encoding="utf-8")
    verdict, why = (_after(word, text) for word in ("Verdict:", "Why:"))
    causes = {
        "INPUT-BOUND": "input_wait",
        "COMPUTE-BOUND": NOTHING,
        "BALANCED": NOTHING,
        "RESIDUAL-HEAVY": UNKNOWN,
    }
    name = verdict.split("(")[0].strip()
    steps = re.search(r"(\d+) (?:common |completed )?steps", text)
    words = f"{' '.join(verdict.split())}: {why}"
    return ToolOutput(words, causes.get(name, SILENT), int(steps[1]) if steps else None)


def gpuprof_output(output: str) -> ToolOutput:
    """From the block it prints at the end: the gravest of its insights but for the price."""
    insights = re.findall(r"\[(HIGH|MED|LOW)\] +(.+)", output)
    ranked = sorted(
        (line for line in insights if "Estimated cost" not in line[1]),
        key=lambda line: ("HIGH", "MED", "LOW").index(line[0]),
    )
    steps = re.search(r"\((\d+) steps", output)
    count = int(steps[1]) if steps else None
    if not ranked:
        return ToolOutput("(only the estimated cost)", NOTHING, count)
    level, words = ranked[0]
    is_loader = re.search(r"loader|prefetch", words, re.IGNORECASE)
    cause = NOTHING if level == "LOW" else "input_wait" if is_loader else UNKNOWN
    return ToolOutput(f"[{level}] {words}", cause, count)


def gpumon_output(daemon: RunningDaemon) -> ToolOutput:
    """From ``gpumon report --json`` and the first line of ``gpumon report``."""
    observed_s = daemon.report()["gpus"][0]["observed_seconds"]

    def is_settled() -> bool:
        gpu = daemon.report()["gpus"][0]
        later_s: float = gpu["observed_seconds"] - observed_s
        return later_s > 2 and gpu["pending_seconds"] == 0

    wait_until(is_settled, patience_s=60)
    report: dict[str, Any] = json.loads(_report(daemon, "--json"))
    text = _report(daemon).partition("\nWhy:")[0]
    gpu = report["gpus"][0]
    idle = {k: v for k, v in gpu["idle_by_cause"].items() if k not in ("not_in_use", "start_up")}
    cause = max(idle, key=idle.__getitem__) if idle else NOTHING
    is_well = gpu["verdict"] in ("healthy", "not_in_use")
    is_reported = gpu["verdict"] in ("starved", "stalled")  # the others claim no cause
    return ToolOutput(
        " ".join(text.removeprefix("Verdict:").split()),
        NOTHING if is_well else cause if is_reported else SILENT,
        report["runs"][0]["steps"] if report["runs"] else None,
        None if is_well else idle[cause],
    )


def _report(daemon: RunningDaemon, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "gpumon", "report", *words],
        env=daemon.environ, cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def _after(word: str, text: str) -> str:
    found = re.search(rf"{word} *(.+?)[ |]*$", text, re.MULTILINE)
    return found[1] if found else "(none)"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

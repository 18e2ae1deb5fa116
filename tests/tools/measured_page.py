"""Names of the pages in ``docs/measured``, and the one that ``make gpu-multi`` writes.

Standard library only, because ``run_gpu_tests`` imports it.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

_LONGEST = 96


@dataclass(frozen=True)
class Machine:
    """The names of all GPUs, in the driver's order, and the driver's version."""

    boards: tuple[str, ...]
    driver: str

    def __str__(self) -> str:
        return ", ".join(f"{count} x {name}" for name, count in Counter(self.boards).items())

    @property
    def page_name(self) -> str:
        """Such as ``2-x-nvidia-l4-multi.md``."""
        return f"{_in_letters(str(self))}-multi.md"

    @property
    def board_page_name(self) -> str:
        """The page about its first board alone, such as ``nvidia-l4.md``."""
        return f"{_in_letters(self.boards[0])}.md"


def _in_letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@dataclass
class Results:
    """The results of one run of pytest.

    Attributes:
        python: The versions of the interpreter and the frameworks.
        figures: ``(what, measured, target)``; the target may be empty.
        outcomes: ``(test, "passed", "failed" or "skipped", why it was skipped)``.
    """

    python: str
    figures: list[tuple[str, str, str]] = field(default_factory=list)
    outcomes: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def ran(self) -> bool:
        """Whether any test was not skipped."""
        return any(outcome != "skipped" for _, outcome, _ in self.outcomes)


def machine_here() -> Machine:
    """The boards and the driver of this machine; none if no driver answers."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return Machine((), "")
    if nvml.nvmlInit_v2() != 0:
        return Machine((), "")
    try:
        return _read(nvml)
    finally:
        nvml.nvmlShutdown()


def _read(nvml: Any) -> Machine:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return Machine((), "")
    printed = ctypes.create_string_buffer(_LONGEST)
    names = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        failed = failed or nvml.nvmlDeviceGetName(handle, printed, _LONGEST)
        names.append("a GPU without a name" if failed else printed.value.decode())
    failed = nvml.nvmlSystemGetDriverVersion(printed, _LONGEST)
    return Machine(tuple(names), "unknown" if failed else printed.value.decode())


def results_of(junit: Path, python: str) -> Results:
    """Read pytest's ``--junitxml``; the figures are properties named ``figure``."""
    results = Results(python)
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        skipped = case.find("skipped")
        is_bad = case.find("failure") is not None or case.find("error") is not None
        outcome = "failed" if is_bad else "passed" if skipped is None else "skipped"
        reason = "" if skipped is None else skipped.get("message", "")
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}.{case.get('name', '')}"
        results.outcomes.append((name, outcome, reason))
        for reported in case.iter("property"):
            if reported.get("name") == "figure":
                what, measured, target = [*reported.get("value", "").split(" | "), "", ""][:3]
                results.figures.append((what, measured, target))
    return results


def page_of(machine: Machine, runs: Sequence[Results], *, date: str, command: str) -> str:
    """The page, in Markdown; one run for each interpreter."""
    lines = [f"# Measured on {machine}", "", f"`{command}` on {date}, driver {machine.driver}."]
    figures = [figure for run in runs for figure in run.figures]
    if figures:
        lines += ["", "| what | measured | target |", "| --- | --- | --- |"]
        lines += [f"| {what} | {measured} | {target} |" for what, measured, target in figures]
    for run in runs:
        counted = Counter(outcome for _, outcome, _ in run.outcomes)
        lines += ["", f"## {run.python}", ""]
        lines.append(", ".join(f"{counted[one]} {one}" for one in ("passed", "failed", "skipped")))
        others = [
            f"- {outcome}: {name}" + (f" ({reason})" if reason else "")
            for name, outcome, reason in run.outcomes
            if outcome != "passed"
        ]
        lines += ["", *others] if others else []
    return "\n".join([*lines, ""])

"""The three slow trainings among the examples: what their reports must name, and the change."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.codecs.report_codec import decode_report
from gpumon.core.report.report import Report
from tests.daemon import RunningDaemon
from tests.truth.advice.followed import Followed, followed_of
from tests.truth.host.cells import ROOT, group_of
from tests.truth.host.surroundings import NotHereError

_PATIENCE_S: Final = 180.0


class SlowExample(NamedTuple):
    """One of them.

    Attributes:
        reason: For which it waits.
        steps: Enough for a verdict before the change, and for a pace after it.
        change: The argument that makes it.
        names: What the advice names.
        framework: Whose environment it needs; empty: none.
    """

    reason: str
    steps: tuple[int, int]
    change: tuple[str, ...]
    names: tuple[str, ...]
    framework: str = ""


SLOW_EXAMPLES: Final[Mapping[str, SlowExample]] = MappingProxyType(
    {
        "slow_by_a_disk": SlowExample(
            "disk_bound", (320, 250), ("--keep-in-memory",), ("in memory",)
        ),
        "slow_by_the_gil": SlowExample(
            "gil_bound", (400, 350), ("--processes",),
            ("processes", "Texts", "slow_by_the_gil.py:"),
        ),
        "slow_by_few_workers": SlowExample(
            "cpu_bound", (350, 300), ("--workers", "2"),
            ("num_workers=2", "DataLoader(Photos, num_workers=1)", "slow_by_few_workers.py:"),
            framework="torch",
        ),
    }
)  # fmt: skip


def example_followed(name: str) -> Followed:
    """Train as it is, and with the argument that its report asks for.

    Raises:
        NotHereError: Its framework is not here.
        AssertionError: The report names another reason, or not what is to be changed.
    """
    slow = SLOW_EXAMPLES[name]
    before, after = (
        _report_of(name, slow, ("--steps", str(steps), *words))
        for steps, words in zip(slow.steps, ((), slow.change), strict=True)
    )
    cause = next((one.cause for one in before.advice if one.reason == slow.reason), None)
    assert cause is not None, [one.reason for one in before.advice]
    row = followed_of(cause, before, after)
    assert not [word for word in slow.names if word not in row.text], row
    return row


def _report_of(name: str, slow: SlowExample, words: tuple[str, ...]) -> Report:
    python = Path(sys.executable)
    if slow.framework:
        python = ROOT / f".venv-{slow.framework}" / "bin" / "python"
    if not python.exists():
        raise NotHereError(f"make test-{slow.framework} makes .venv-{slow.framework}")
    with ExitStack() as around:
        folder = Path(around.enter_context(tempfile.TemporaryDirectory(prefix="gpumon-slow-")))
        spans = folder / "busy.jsonl"
        daemon = around.enter_context(RunningDaemon(folder, "--source", f"follow:{spans}"))
        environ = {**daemon.environ, "GPUMON_GPUS": "0", "PYTHONPATH": str(ROOT)}
        line = [str(python), f"examples/{name}.py", "--spans", str(spans), *words]
        with group_of(line, environ, folder / "training.log") as training:
            training.communicate(timeout=_PATIENCE_S)
        if training.returncode != 0:
            raise RuntimeError((folder / "training.log").read_text(encoding="utf-8"))
        return decode_report(daemon.settled_report(patience_s=60))

"""``gpumon top -1``, line by line, for a few machines and widths."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.core.view.status import Tone
from gpumon.core.view.view import Headline, MonitorView, ProcessView
from gpumon.errors import SourceUnavailableError
from gpumon.outlets.screen.ink import Ink
from gpumon.outlets.screen.one_screen import Screenful, one_screen
from gpumon.outlets.text.style import TextStyle
from tests.builders.view import (
    GIB,
    PARTITIONED,
    UNUSED,
    cells,
    gpu_view,
    held,
    lost,
    sixteen,
    starved,
    view,
)
from tests.command_line import Shell
from tests.golden.test_command_line import refusals, refused
from tests.golden_files import Chapters, golden_story
from tests.serving import answering

DAEMON = "daemon at 127.0.0.1:19835"
HEALTHY = "Healthy since 14:03 UTC: GPUs 0 and 1."
WELL = Headline(Tone.GOOD, "1 % lost", HEALTHY, HEALTHY, "", "", None)
HOSTILE = "\x1b[31m[bold]evil[/bold]\u202egnp.exe\n" + "x" * 300


def screen(
    machine: MonitorView | None, width: int = 80, *, unicode: bool = True, trouble: str = ""
) -> str:
    shown = Screenful(machine, DAEMON, trouble, 1_796_048_585.0)
    lines = one_screen(shown, width, Ink(TextStyle(unicode=unicode)))
    return "\n".join(line.plain.rstrip() for line in lines)


@golden_story
def test_screens_of_top() -> Chapters:
    named = starved("3")._replace(
        user="al\u202eice",
        runs=(HOSTILE,),
        line=f"GPU 3 waits. {HOSTILE}",
        processes=(ProcessView(1, "数据科学家数据科学家", HOSTILE, GIB, 0.5),),
    )
    board = gpu_view("0", PARTITIONED, line="MIG is on: its instances have the work.")
    instances = [
        starved("3")._replace(label=f"0:{at}", number=0, parent_uuid="GPU-0") for at in range(2)
    ]
    unused = gpu_view(
        "0", UNUSED, runs=(), processes=(), user=None, lost_ratio=None, lost_by_cause={},
        utilization_ratio=0.0, cells=cells(not_in_use=10.0),
    )  # fmt: skip
    bare = gpu_view(
        "0", memory_used_bytes=None, power_watts=None, temperature_celsius=None, processes=None,
        user=None, runs=(), cells=cells(), since_text="",
    )  # fmt: skip
    few = (lost("9"), starved("3"), held("12"), gpu_view("0"))
    return {
        "sixteen GPUs, in 80 columns": screen(sixteen()),
        "the same four, in 20 columns": screen(view(*few), 20),
        "in 120 columns": screen(view(*few), 120),
        "in 250 columns": screen(view(*few), 250),
        "in ASCII": screen(view(*few), unicode=False),
        "two healthy ones": screen(view(gpu_view("0"), gpu_view("1"), headline=WELL)),
        "one that is not in use": screen(view(unused, headline=WELL)),
        "one that reports little": screen(view(bare, headline=WELL, simulated=True)),
        "MIG": screen(view(*instances, board), 100),
        "names that mean harm": screen(view(named), 120),
        "names that are not known": screen(view(held("12", None, None))),
        "a note, and no GPU": screen(view(headline=WELL, notes=("The source has ended.",))),
        "a daemon that has gone": screen(view(*few[:1]), trouble="the gpumon daemon has ended"),
        "nothing yet": screen(None),
    }


@golden_story
def test_refusals_of_top(
    gpumon: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Chapters:
    def refuse(*_: object, **__: object) -> None:
        raise SourceUnavailableError("libnvidia-ml.so.1 was not found")

    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("abc")
    Path("short").chmod(0o600)
    monkeypatch.setattr("gpumon.cli.source_option.open_source", refuse)
    lines = [
        "top -1",
        "top -1 --source nvml",
        "top -1 --source nonsense",
        "top -1 --source replay:night.gpumon",
        "top -1 --source simulated:eight --connect 127.0.0.1:1",
        "top -1 --connect nonsense",
        "top -1 --connect 127.0.0.1:99999",
        "top -1 --connect 127.0.0.1:1",
        "top -1 --connect gpu7.example:19835",
        "top -1 --connect 127.0.0.1:1 --token-file gone",
        "top -1 --connect 127.0.0.1:1 --token-file short",
        "top -1 --period 60",
        "top --frobnicate",
    ]
    refused_lines = {**refusals(gpumon, lines)}
    token = Path("token")
    token.write_text("0123456789abcdef0123")
    token.chmod(0o600)
    refused_lines = {**refused_lines, **refusals(gpumon, ["top -1 --token-file token"])}
    for what, body, status in (
        ("an older daemon", b"Nothing here: try /\n", 404),
        ("no daemon", b"<html>", 200),
        ("one without a token", b"no", 403),
    ):
        with answering(body, status) as address:
            ended = refused(gpumon("top", "-1", "--connect", address))
        refused_lines[f"top -1 --connect HOST:PORT, which is {what}"] = ended.replace(
            address, "HOST:PORT"
        )
    return refused_lines

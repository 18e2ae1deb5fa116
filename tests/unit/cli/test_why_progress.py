"""What `gpumon why` shows while it watches."""

from __future__ import annotations

import io

from gpumon.cli.why_progress import WhyProgress
from gpumon.core.phase import IdleCause
from gpumon.core.stacks.evidence import PlaceCount
from gpumon.core.stacks.stack import StackFrame
from gpumon.pipeline.stack_watch import Progress, Target
from tests.builders.time import s
from tests.command_line import Terminal

CALL = StackFrame("main", "/home/ann/train.py", 41)
PLACE = PlaceCount(IdleCause.INPUT_WAIT, "DataLoader.__next__", None, CALL, samples=5)


def shown(stream: io.StringIO, *watched: Progress) -> list[str]:
    with WhyProgress(stream, Target("0", 42), "python train.py", 60) as progress:
        for one in watched:
            progress.update(one)
    return stream.getvalue().splitlines()


def after(passed_s: float, place: PlaceCount | None = PLACE) -> Progress:
    return Progress(s(passed_s), s(10), s(6), 6, 0, place)


def test_in_a_log_the_line_of_the_script_comes_after_10_s_and_then_each_30_s() -> None:
    times = (0.0, 9.9, 10.1, 39.9, 40.2, 59.0)
    lines = shown(io.StringIO(), *map(after, times))

    assert lines[1:] == 2 * [
        "gpumon: idle 60 % of the time so far; 5 of 6 stack samples at train.py:41"
    ]


def test_on_a_terminal_the_line_of_the_script_comes_as_soon_as_it_is_known() -> None:
    text = "\n".join(shown(Terminal(), after(1.1, None), after(2.2)))

    assert "idle 60 % of the time so far; 6 stack samples of it" in text
    assert "5 of 6 stack samples at train.py:41" in text

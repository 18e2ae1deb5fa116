"""Tests of what ``gpumon top -1`` prints of a view."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from gpumon.core.view.view import MonitorView
from gpumon.outlets.screen.ink import Ink
from gpumon.outlets.screen.one_screen import Screenful, one_screen
from gpumon.outlets.text.style import TextStyle
from tests.builders.view import gpu_view, held, sixteen, starved, view

ROW = re.compile(r"GPU (\S+)")


def printed(machine: MonitorView, width: int = 80) -> list[str]:
    lines = one_screen(Screenful(machine, "daemon"), width, Ink(TextStyle()))
    return [line.plain for line in lines]


def rows(lines: list[str]) -> list[str]:
    return [found[1] for line in lines if (found := ROW.match(line))]


@pytest.mark.parametrize("count", [1, 8, 16, 64])
def test_a_row_begins_with_its_gpu_in_the_order_of_the_view(count: int) -> None:
    gpus = [gpu_view(f"{at}") for at in reversed(range(count))]

    assert rows(printed(view(*gpus))) == [gpu.label for gpu in gpus]


@pytest.mark.parametrize("width", [1, 7, 20, 40, 80, 120, 250, 500])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = starved("3")._replace(user="数据科学家", line="数据" * 90, runs=("数" * 40,))
    machine = sixteen()
    lines = printed(machine._replace(gpus=(wide, *machine.gpus)), width)

    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("raw", ["\x1b[31m", "[bold red]x[/]", "\u202e", "\u2066", "a\nb", "\x00"])
def test_a_name_changes_no_line_but_its_own(raw: str) -> None:
    name = f"x{raw}y"
    gpu = held("2", name, name)._replace(runs=(name,), name=name)
    lines = one_screen(Screenful(view(gpu), name), 200, Ink(TextStyle()))

    assert all(line.plain.isprintable() for line in lines)
    assert not [span for line in lines for span in line.spans if span.style == "bold red"]


def test_many_gpus_with_one_advice_are_explained_once() -> None:
    lines = printed(view(*(starved(f"{at}") for at in range(64))))

    assert len([line for line in lines if "waiting for input · 52 s" in line]) == 1


def test_the_words_and_ratios_are_those_of_the_view() -> None:
    gpu = starved("3")
    (row,) = (line for line in printed(view(gpu), 200) if ROW.match(line))

    assert f"{gpu.status.shape} {gpu.status.word}" in row
    assert "41 %" in row
    assert "55 %" in row
    assert f"{gpu.cause_text}: {gpu.reason_text}" in row

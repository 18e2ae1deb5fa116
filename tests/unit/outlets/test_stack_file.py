"""Stacks in files that tools for flame graphs read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import ProcessStack, StackFrame, StackSample, ThreadStack
from gpumon.core.stacks.stack_counts import StackCounts
from gpumon.errors import UnwritableFileError, UsageError
from gpumon.outlets.stack_file import StackFile, collapsed, speedscope

MAIN = StackFrame("main", "/job/train.py", 41)
READ = StackFrame("read;\x1b[31m", "/job/train.py", 8)


def counts(*samples: tuple[SampleKind, tuple[StackFrame, ...]]) -> StackCounts:
    counted = StackCounts()
    for kind, frames in samples:
        thread = ThreadStack(7, frames, name="MainThread")
        counted.add(
            kind, StackSample(0, 1, 7, (ProcessStack(7, None, "python train.py", (thread,)),))
        )
    return counted


BOTH = counts(
    (SampleKind.IDLE, (READ, MAIN)), (SampleKind.IDLE, (READ, MAIN)), (SampleKind.BUSY, (MAIN,))
)


def test_collapsed_stacks_begin_with_what_the_gpu_did() -> None:
    thread = "python train.py;MainThread;main (/job/train.py:41)"
    assert collapsed(BOTH).splitlines() == [
        f"GPU idle;{thread};read,�[31m (/job/train.py:8) 2",
        f"GPU busy;{thread} 1",
    ]


def test_speedscope_has_a_profile_each_for_idle_and_busy() -> None:
    document = json.loads(speedscope(BOTH, "train.py"))
    idle, busy = document["profiles"]
    frames = document["shared"]["frames"]

    assert (idle["name"], idle["weights"], idle["endValue"]) == ("GPU idle", [2], 2)
    assert (busy["name"], busy["weights"]) == ("GPU busy", [1])
    names = [frames[number]["name"] for number in idle["samples"][0]]
    assert names == ["python train.py", "MainThread", "main", "read;�[31m"]


def test_memory_is_bounded_and_what_is_left_out_is_counted() -> None:
    many = counts(
        *((SampleKind.IDLE, (StackFrame("main", "/job/train.py", n),)) for n in range(10_050))
    )

    assert (len(list(many.items())), many.left_out) == (10_000, 50)


class TestAFileOfStacks:
    def test_is_private_and_written_in_the_format_of_its_name(self, tmp_path: Path) -> None:
        for name in ("a.collapsed", "b.json"):
            StackFile(str(tmp_path / name)).write(BOTH, "train.py")

        assert (tmp_path / "a.collapsed").read_text() == collapsed(BOTH)
        assert json.loads((tmp_path / "b.json").read_text())["name"] == "train.py"
        assert (tmp_path / "b.json").stat().st_mode & 0o777 == 0o600

    def test_never_replaces_another(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text("precious")
        with pytest.raises(UsageError):
            StackFile(str(tmp_path / "a.json"))

        assert (tmp_path / "a.json").read_text() == "precious"

    def test_is_refused_before_the_watch_where_it_cannot_be(self, tmp_path: Path) -> None:
        with pytest.raises(UnwritableFileError):
            StackFile(str(tmp_path / "none" / "a.json"))

    def test_is_removed_if_nothing_was_watched(self, tmp_path: Path) -> None:
        StackFile(str(tmp_path / "a.json")).discard()

        assert list(tmp_path.iterdir()) == []

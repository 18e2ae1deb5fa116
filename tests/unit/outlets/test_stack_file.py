"""Stacks in files that tools for flame graphs read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


NAMES = st.text(max_size=30)
STACKS = st.lists(
    st.tuples(
        st.sampled_from([*SampleKind]),
        st.lists(
            st.builds(StackFrame, NAMES, NAMES, st.one_of(st.none(), st.integers(1, 10**6))),
            min_size=1,
            max_size=300,
        ).map(tuple),
    ),
    max_size=20,
)


class TestStacksWithAnyNames:
    @given(STACKS)
    def test_are_lines_that_end_with_their_number(self, stacks: list[Any]) -> None:
        counted = counts(*stacks)
        lines = collapsed(counted).splitlines()
        text = re.compile(r"GPU [^;]+;python train\.py;MainThread(;[^;]*)+ (\d+)")
        found = [text.fullmatch(line) for line in lines]

        assert all(found), lines
        assert sum(int(one[2]) for one in found if one) == len(stacks)

    @given(STACKS)
    def test_are_what_speedscope_reads(self, stacks: list[Any]) -> None:
        document = json.loads(speedscope(counts(*stacks), "train.py"))
        frames = document["shared"]["frames"]

        assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
        assert all(isinstance(frame["name"], str) for frame in frames)
        for profile in document["profiles"]:
            assert profile["type"] == "sampled"
            assert len(profile["samples"]) == len(profile["weights"])
            assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
            assert all(0 <= at < len(frames) for stack in profile["samples"] for at in stack)


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

    @pytest.mark.parametrize("name", ["a.json", "a.txt"])
    def test_leaves_nothing_on_a_full_disk(self, tmp_path: Path, name: str) -> None:
        file = StackFile(str(tmp_path / name))
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, file._descriptor)
        os.close(full)

        with pytest.raises(UnwritableFileError, match="No space left on device"):
            file.write(BOTH, "train.py")
        assert list(tmp_path.iterdir()) == []

    def test_is_removed_if_nothing_was_watched(self, tmp_path: Path) -> None:
        StackFile(str(tmp_path / "a.json")).discard()

        assert list(tmp_path.iterdir()) == []

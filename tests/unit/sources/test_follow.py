"""Tests of ``follow:FILE``: a GPU whose busy spans another process writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.sample import BusySample
from gpumon.errors import SourceUnavailableError
from gpumon.sources.follow import FollowSource
from gpumon.sources.gpu_source import ReadNow
from tests.builders.time import HandClock, s


class Followed:
    """A followed file that the test appends to."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.path = folder / "busy.jsonl"
        self.source = FollowSource(self.path, self.clock)
        self.began_ns = self.clock.now_ns
        self.samples: list[BusySample] = []
        self.rejected = 0
        self.trouble: str | None = None

    def write(self, line: str, end: str = "\n") -> None:
        with self.path.open("a") as handle:
            handle.write(line + end)

    def busy(self, start_s: float, end_s: float, gpu: int = 0, **more: Any) -> None:
        start_ns, end_ns = self.began_ns + s(start_s), self.began_ns + s(end_s)
        self.write(json.dumps({"gpu": gpu, "start_ns": start_ns, "end_ns": end_ns, **more}))

    def read(self, after_s: float = 1.0, gpu: int = 0) -> list[BusySample]:
        self.clock.pass_seconds(after_s)
        frame = self.source.read()
        self.rejected += frame.rejected
        self.trouble = frame.trouble
        new = list(frame.gpus[gpu].busy)
        self.samples.extend(new)
        return new

    def busy_seconds(self) -> float:
        return sum((end - start) * ratio for start, end, ratio in self.samples) / s(1)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


class TestBusySpans:
    def test_become_the_ratio_of_each_window(self, followed: Followed) -> None:
        for k in range(40):
            followed.busy(k * 0.1, k * 0.1 + 0.04)
            followed.read(0.1)
        followed.read(3.0)

        assert followed.busy_seconds() == pytest.approx(1.6, abs=0.02)

    def test_are_awaited_as_long_as_the_longest_one(self, followed: Followed) -> None:
        followed.clock.pass_seconds(4.0)
        followed.busy(0.0, 4.0)
        followed.read(0.0)

        silent = followed.read(3.0)

        assert silent == []


class TestSilence:
    def test_means_idle_after_the_patience(self, followed: Followed) -> None:
        followed.read(5.0)

        assert followed.samples
        assert followed.busy_seconds() == 0.0
        assert followed.samples[-1].end_ns <= followed.clock.now_ns - s(1.0)


class TestAFileWithoutNewSpans:
    def test_is_reported_after_a_minute_of_silence(self, followed: Followed) -> None:
        followed.busy(0.0, 0.5)
        assert trouble_of(followed, 1.0) is None
        assert trouble_of(followed, 59.0) is None

        assert trouble_of(followed, 2.0) == (
            f"no span was written to {followed.path} for a minute: its GPU counts as idle"
        )
        followed.busy(61.0, 61.5)
        assert trouble_of(followed, 1.0) is None
        assert trouble_of(followed, 59.0) is None


def trouble_of(followed: Followed, after_s: float) -> str | None:
    followed.read(after_s)
    return followed.trouble


class TestBadInput:
    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("no json", 'not {"gpu": 0, "start_ns": 1, "end_ns": 2} in integers, but '),
            ("[]", "in integers"),
            ('{"gpu": 0}', "in integers"),
            ("\x00\xff" * 3000, "in integers"),
            ("[" * 3000, "in integers"),
            ("x" * 5000, "but '" + "x" * 60 + "'"),
            ('{"gpu": 0, "start_ns": 1.5, "end_ns": 2}', 'in integers, but \'{"gpu": 0'),
            ('{"gpu": 0, "start_ns": NaN, "end_ns": 2}', "in integers"),
            ('{"gpu": true, "start_ns": 1, "end_ns": 2}', "in integers"),
            ('{"gpu": "0", "start_ns": 1, "end_ns": 2}', "in integers"),
            ('{"gpu": -1, "start_ns": 1, "end_ns": 2}', "no GPU -1: an index is 0 to 63"),
            ('{"gpu": 64, "start_ns": 1, "end_ns": 2}', "there is no GPU 64: an index is 0 to 63"),
            ('{"gpu": 0, "start_ns": 2, "end_ns": 1}', "it starts"),
            ('{"gpu": 0, "start_ns": 1, "end_ns": 2}', "the previous span"),
            ('{"gpu": 0, "start_ns": 1, "end_ns": 1' + "0" * 18 + "}", "in the future of CLOCK_M"),
            ('{"gpu": 0, "start_ns": 1, "end_ns": ' + "9" * 20 + "}", "in the future of CLOCK_M"),
        ],
    )
    def test_is_counted_and_reported_with_its_line(
        self, followed: Followed, line: str, text: str
    ) -> None:
        followed.clock.pass_seconds(1.0)
        followed.busy(0.0, 0.5)
        followed.write(line)
        followed.busy(0.6, 0.7)
        followed.read(2.0)

        assert followed.rejected == 1
        assert followed.trouble is not None
        assert followed.trouble.startswith(f"{followed.path}, line 2: ")
        assert text in followed.trouble
        assert followed.busy_seconds() == pytest.approx(0.6, abs=0.01)

    def test_an_incomplete_line_is_awaited(self, followed: Followed) -> None:
        followed.clock.pass_seconds(1.0)
        line = json.dumps(
            {"gpu": 0, "start_ns": followed.began_ns, "end_ns": followed.clock.now_ns}
        )
        followed.write(line[:20], end="")
        followed.read(0.1)
        followed.write(line[20:])
        followed.read(2.0)

        assert followed.rejected == 0
        assert followed.busy_seconds() == pytest.approx(1.0, abs=0.02)

    def test_a_rewritten_file_is_read_from_its_start(self, followed: Followed) -> None:
        followed.clock.pass_seconds(2.0)
        followed.busy(0.0, 0.5)
        followed.busy(0.5, 0.6)
        followed.read(0.1)
        followed.path.unlink()
        followed.busy(1.0, 1.5)
        followed.read(2.0)

        assert followed.busy_seconds() == pytest.approx(1.1, abs=0.02)

    def test_a_folder_that_does_not_exist_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SourceUnavailableError, match="nowhere"):
            FollowSource(tmp_path / "nowhere" / "busy.jsonl", HandClock())


class TestAProcess:
    """A line may name the process that works on the GPU."""

    def test_is_listed_with_its_user_while_it_lives(self, followed: Followed) -> None:
        followed.busy(0.0, 0.1, pid=os.getpid())
        followed.busy(0.1, 0.2, pid=4_194_303)
        followed.clock.pass_seconds(1.0)

        (process,) = followed.source.read().gpus[0].processes or ()

        assert (process.pid, process.uid) == (os.getpid(), os.geteuid())

    def test_that_no_line_names_is_no_empty_list(self, followed: Followed) -> None:
        followed.busy(0.0, 0.1)
        followed.clock.pass_seconds(1.0)

        assert followed.source.read().gpus[0].processes is None

    @pytest.mark.parametrize("pid", [0, -1, 1 << 40])
    def test_of_an_impossible_number_is_left_out(self, followed: Followed, pid: int) -> None:
        followed.busy(0.0, 0.1, pid=pid)
        followed.read()

        assert followed.rejected == 0
        assert followed.source.read().gpus[0].processes is None

    @pytest.mark.parametrize("pid", ['"one"', "true", "1.5"])
    def test_that_is_no_number_is_refused_with_its_line(self, followed: Followed, pid: str) -> None:
        followed.write(f'{{"gpu": 0, "start_ns": 1, "end_ns": 2, "pid": {pid}}}')
        followed.read()

        assert followed.rejected == 1

    def test_is_idle_now_unless_a_span_has_just_ended(self, followed: Followed) -> None:
        followed.busy(0.0, 0.9, pid=os.getpid())
        followed.clock.pass_seconds(1.0)
        working = followed.source.read(ReadNow.PRESENT).present_ratios
        followed.clock.pass_seconds(1.0)
        idle = followed.source.read(ReadNow.PRESENT).present_ratios

        assert working == (("GPU-followed-0", 1.0),)
        assert idle == (("GPU-followed-0", 0.0),)
        assert followed.source.read().present_ratios == ()

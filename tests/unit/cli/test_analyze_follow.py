"""Tests of `gpumon analyze --follow`: its refusals, its status line, and files that are replaced.

``tests/e2e`` follows real files.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from gpumon.cli import live_line
from gpumon.cli.analyze import readable_lines
from gpumon.cli.live_line import so_far
from gpumon.errors import UnreadableLogError
from gpumon.sources.live_input import LiveReading
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import (
    DMON,
    HEADER,
    NO_OPTIONS,
    analysed,
    at_work,
    csv,
    smi_log,
    smi_stamp,
)
from tests.command_line import Shell


class TestFollowing:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["gpu.csv", "other.csv"], "--follow reads one log until Ctrl-C: name one FILE"),
            (["-"], "--follow is for a file; the standard input is read until it ends anyway"),
        ],
        ids=["several logs", "standard input"],
    )
    def test_needs_one_file(self, words: list[str], message: str, gpumon: Shell) -> None:
        ended = gpumon("analyze", "--follow", *words)

        assert (ended.code, ended.err) == (2, f"gpumon: {message}\n")

    def test_is_refused_for_a_packed_file(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv.gz"
        path.write_bytes(gzip.compress(smi_log([97] * 20).encode()))

        with pytest.raises(UnreadableLogError, match="is packed, and a packed file does not grow"):
            LogText(str(path), live=LiveReading(), follows=True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestTheStatusLine:
    @pytest.mark.parametrize(
        ("columns", "line"),
        [
            (
                4_096,
                "60 rows, 60 s; busy now: GPU 0 100 %; lost so far 10.9 s, 18 % of the time in "
                "use; Ctrl-C ends it with the report",
            ),
            (78, "60 rows, 60 s; busy now: GPU 0 100 %; lost 10.9 s (18 %); Ctrl-C: report"),
            (60, "60 s; busy now: 100 %; lost 10.9 s (18 %); Ctrl-C: report"),
            (9, "busy now: 100 %; lost 10.9 s (18 %)"),
        ],
    )
    def test_fits_into_the_terminal(self, columns: int, line: str) -> None:
        report = analysed(smi_log([97] * 30 + [0] * 10 + [100] * 20))

        assert so_far(report, 60, [1.0], 0.4, columns) == line

    def test_has_the_mean_of_several_gpus_in_a_narrow_terminal(self) -> None:
        report = analysed(csv(at_work(60, 2)))

        assert so_far(report, 120, [1.0, 0.5], 0.4, 60) == (
            "60 s; busy now: 75 %; lost 3.6 s (3.0 %); Ctrl-C: report"
        )

    def test_has_no_loss_if_nothing_was_in_use(self) -> None:
        assert "busy now: GPU 0 0 %; nothing in use yet;" in so_far(
            analysed(smi_log([0] * 30)), 30, [0.0], 0.4
        )

    @pytest.mark.parametrize(
        ("period_s", "silent_s", "part"),
        [
            (1, 2.9, "busy now: GPU 0 97 %"), (1, 12.4, "nothing new for 12 s"),
            (0.2, 3.1, "nothing new for 3.1 s"),
            (30, 89, "busy now: GPU 0 97 %"), (30, 600, "nothing new for 10 min"),
        ],
    )  # fmt: skip
    def test_has_no_present_state_after_a_silence_of_a_few_rows(
        self, period_s: float, silent_s: float, part: str
    ) -> None:
        line = so_far(analysed(smi_log([97] * 60, period_s)), 60, [0.97], silent_s)

        assert f"; {part}; lost so far" in line

    def test_that_is_not_ready_is_not_waited_for_at_the_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live_line, "_EVERY_S", 0.0)
        slow, live = "import time; time.sleep(3); print('ready')", LiveReading()
        with subprocess.Popen([sys.executable, "-c", slow], stdout=subprocess.PIPE) as child:
            monkeypatch.setattr(os, "fork", lambda: child.pid)
            with live_line.LiveLine(live, Terminal()):
                live.on_wait()
            printed, _ = child.communicate()

        assert printed == b""


class Replaced:
    """A followed log, one file after another."""

    name = "gpu.csv"

    def __init__(self, *files: str) -> None:
        self._files = files
        self.new_files = 0
        self.damage: UnreadableLogError | None = None

    def available_lines(self) -> Iterator[str]:
        for number, file in enumerate(self._files):
            self.new_files = number
            yield from file.splitlines(keepends=True)


def read_on(*files: str) -> tuple[int, str | None]:
    """The number of lines that are read, and why no more."""
    text = Replaced(*files)
    count = sum(1 for _ in readable_lines(cast("LogText", text), NO_OPTIONS))
    return count, None if text.damage is None else str(text.damage)


FIRST = smi_log([97] * 30)
LATER = "".join(f"{smi_stamp(at)}, 0, NVIDIA A40, 97 %, 1830 MiB\n" for at in range(40, 70))
WIDE, LATER_WIDE = (
    "".join(f"{smi_stamp(at)},97,45\n" for at in range(start, start + 30)) for start in (0, 40)
)
USABLE = {
    "with the same header": (FIRST, HEADER + "\n" + LATER),
    "without a header, twice": (FIRST, LATER, LATER),
    "with its header alone so far": (FIRST, HEADER + "\n"),
    "whose first line was cut short": (FIRST, "45 %, 1830 MiB\n" + LATER),
    "of another tool with the same format": ("\n".join(DMON * 9) + "\n", "\n".join(DMON) + "\n"),
}
UNUSABLE = {
    "with another separator": (FIRST, "time;gpu_util\n" + "2026-03-02 09:00:00;97\n" * 60),
    "with few lines": (FIRST, "time;gpu_util\n2026-03-02 09:00:00;97\n"),
    "without a utilisation": (
        FIRST, "timestamp, power.draw [W]\n" + f"{smi_stamp(50)}, 97.20 W\n" * 60
    ),
    "with other columns under a header": (
        FIRST, "index, utilization.gpu [%], timestamp\n" + f"0, 97 %, {smi_stamp(50)}\n" * 60
    ),
    "of another format": ("\n".join(DMON * 9) + "\n", FIRST),
    "of text": (FIRST, "epoch 3: loss 0.31\n" * 60),
    "with as many other columns": ("time,gpu0,gpu1\n" + WIDE, "time,gpu1,gpu0\n" + LATER_WIDE),
    "after a usable one": (FIRST, LATER, "time;gpu_util\n" + "1;97\n" * 60),
}  # fmt: skip


class TestAReplacedFile:
    @pytest.mark.parametrize("files", USABLE.values(), ids=USABLE)
    def test_is_read_if_the_reader_of_the_first_one_can(self, files: tuple[str, ...]) -> None:
        assert read_on(*files) == ("".join(files).count("\n"), None)

    @pytest.mark.parametrize("files", UNUSABLE.values(), ids=UNUSABLE)
    def test_ends_the_reading_otherwise(self, files: tuple[str, ...]) -> None:
        lines, damage = read_on(*files)

        assert lines < "".join(files[:-1]).count("\n") + 20
        assert damage is not None
        assert damage.startswith(
            "gpu.csv: was replaced by a file that the reader of the first one cannot use (it "
            f"begins with '{files[-1].splitlines()[0][:50]}"
        )

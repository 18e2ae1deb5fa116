"""``gpumon analyze`` on a log that is still written: real pipes, files, terminals and signals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.builders.logs import HEADER, smi_log, smi_stamp
from tests.e2e.pty_terminal import on_a_terminal
from tests.processes import ending
from tests.waiting import PATIENCE_S, wait_until

WRITER = f"""
import sys, time
print({HEADER!r}, flush=True)
for at in range(10**6):
    stamp = f"2025/06/13 00:{{at // 60 % 60:02d}}:{{at % 60:02d}}.000"
    print(f"{{stamp}}, 0, NVIDIA A40, {{97 if at % 10 < 6 else 0}} %, 1830 MiB", flush=True)
    time.sleep(0.01)
"""
PIPELINE = '"$0" -c "$1" | "$0" -m gpumon analyze -'
"""A writer that never ends by itself, and the analysis of what it writes."""
MOVES = (
    r"(?<![\d,])([\d,]+) rows, [\d.]+ [^;]+; busy now: GPU 0 \d+ %; lost so far [\d.]+ [^,]+, \d+ %"
    r"(?s:.*)(?<![\d,])(?!\1 )[\d,]+ rows, "
)
"""A line that was shown, and one of other rows after it."""


def row(at: int, percent: int) -> str:
    return f"{smi_stamp(at)}, 0, NVIDIA A40, {percent} %, 1830 MiB\n"


def analysis(*words: str | Path, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gpumon", "analyze", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


def position_bytes(process: subprocess.Popen[str], path: Path) -> int:
    """How far a process has read a file; -1 where it has not opened it."""
    folder = Path(f"/proc/{process.pid}/fd")
    with contextlib.suppress(OSError):  # descriptors come and go
        for link in folder.iterdir():
            if link.samefile(path):
                return int(folder.with_name("fdinfo").joinpath(link.name).read_text().split()[1])
    return -1


@contextmanager
def following(path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """An analysis that follows a file and has read all of it."""
    with ending(analysis("--json", "--follow", path, *words)) as process:
        wait_until(lambda: position_bytes(process, path) == path.stat().st_size)
        yield process


def report_at_the_end(process: subprocess.Popen[str], end: signal.Signals) -> dict[str, Any]:
    process.send_signal(end)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    return dict(json.loads(out))


class TestAPipe:
    @pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_ends_with_the_report_of_whole_lines_whichever_signal_comes(
        self, end: signal.Signals
    ) -> None:
        read, write = os.pipe()
        with ending(analysis("--json", "-", stdin=read)) as process:
            os.close(read)
            os.write(write, (smi_log([97] * 20) + row(21, 0)[:-7]).encode())
            wait_until(lambda: _is_drained(write))
            time.sleep(0.3)
            report = report_at_the_end(process, end)
            os.close(write)

        assert (report["observed_seconds"], report["skipped_lines"]) == (20.0, 0)

    def test_that_had_no_line_yet_is_refused_in_a_sentence(self) -> None:
        read, write = os.pipe()
        with ending(analysis("-", stdin=read)) as process:
            os.close(read)
            wait_until(lambda: _catches(process, signal.SIGINT, signal.SIGTERM))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
            os.close(write)

        assert (process.returncode, out) == (1, "")
        assert err == "gpumon: standard input: is empty\n"


def _is_drained(pipe: int) -> bool:
    import fcntl
    import termios

    return not any(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))


def _catches(process: subprocess.Popen[str], *signals: signal.Signals) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(re.search(r"SigCgt:\t(\w+)", status)[1], 16)  # type: ignore[index]
    return all(caught >> (number - 1) & 1 for number in signals)


class TestATerminal:
    def test_shows_what_came_so_far_and_the_report_once_ctrl_c_comes(self) -> None:
        written = on_a_terminal(
            ["bash", "-c", PIPELINE, sys.executable, WRITER],
            environ=os.environ, columns=200, ctrl_c_at=MOVES,
        )  # fmt: skip

        assert written.exit_code == 0
        assert "Ctrl-C ends it with the report" in written.raw
        assert any("Verdict: " in line for line in written.lines)


class TestAFollowedFile:
    def test_is_read_on_as_it_grows(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(smi_log([97] * 20))
        with following(path) as process:
            with path.open("a") as log:
                log.write(row(21, 0) + row(22, 0)[:-9])  # half a line
            wait_until(lambda: position_bytes(process, path) == path.stat().st_size)
            report = report_at_the_end(process, signal.SIGINT)

        assert report["observed_seconds"] == 21.0
        assert report["notes"] == []

    @pytest.mark.parametrize("way", ["rotated", "truncated"])
    def test_goes_on_with_a_new_file_and_says_so(self, tmp_path: Path, way: str) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(smi_log([97] * 20) + row(21, 97)[:-9])
        with following(path) as process:
            if way == "rotated":
                path.rename(tmp_path / "gpu.csv.1")
            path.write_text(HEADER + "\n" + row(21, 97))
            wait_until(lambda: position_bytes(process, path) == path.stat().st_size)
            with path.open("a") as log:
                log.write(row(22, 97))
            wait_until(lambda: position_bytes(process, path) == path.stat().st_size)
            report = report_at_the_end(process, signal.SIGTERM)

        assert report["observed_seconds"] == 22.0
        assert report["notes"] == [
            "The file was replaced or truncated 1 time while it was followed: read on with the "
            "new one."
        ]

    def test_that_stands_still_is_not_busy_now(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(smi_log([97] * 60))
        os.utime(path, (1_700_000_000, 1_700_000_000))
        written = on_a_terminal(
            [sys.executable, "-m", "gpumon", "analyze", "--follow", str(path)],
            environ=os.environ, columns=200, ctrl_c_at=r"60 rows, 60 s; nothing new for [\d,]+ h;",
        )  # fmt: skip

        assert written.exit_code == 0
        assert "busy now" not in written.raw

    def test_that_is_not_there_yet_is_waited_for(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        with ending(analysis("--json", "--follow", path)) as process:
            assert process.stderr is not None
            waits = process.stderr.readline()
            path.write_text(smi_log([97] * 20))
            wait_until(lambda: position_bytes(process, path) == path.stat().st_size)
            report = report_at_the_end(process, signal.SIGINT)

        assert waits == f"gpumon: {path}: does not exist yet: waiting for it; Ctrl-C ends it\n"
        assert report["observed_seconds"] == 20.0

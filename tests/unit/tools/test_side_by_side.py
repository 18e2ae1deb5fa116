"""Programs that run beside each other: when each may, what is printed, and how they are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import wait_until
from tests.processes import ending
from tests.tools.side_by_side import Job, Lane, run_side_by_side

ROOT = Path(__file__).resolve().parents[3]
TELLS = """
import sys, time
print(sys.argv[1], "begins", flush=True)
time.sleep(float(sys.argv[2]))
print(sys.argv[1], "ends", flush=True)
sys.exit(int(sys.argv[3]))
"""
SLEEPS = """
import sys
from pathlib import Path
from tests.tools.side_by_side import Job, Lane, run_side_by_side
words = ["sh", "-c", 'echo $$ > "$0"; sleep 600']
jobs = [Job(name=path[-1], command=[*words, path], lane=Lane.BESIDE) for path in sys.argv[1:]]
run_side_by_side(jobs, Path(sys.argv[1]).parent)
"""
"""Two that note who they are."""


def job(
    name: str, lane: Lane = Lane.BESIDE, *needs: str, takes_s: float = 0.0, code: int = 0
) -> Job:
    """One that says when it begins and ends."""
    command = [sys.executable, "-S", "-c", TELLS, name, str(takes_s), str(code)]
    return Job(name=name, command=command, lane=lane, needs=needs, is_shown=lane != Lane.FETCHES)


def overlap(one: Job, other: Job) -> bool:
    return one.began_s < other.ended_s and other.began_s < one.ended_s


class TestTheirOrder:
    def test_is_two_at_a_time_and_those_that_want_to_be_alone_at_last(self, tmp_path: Path) -> None:
        a, b, c = (job(name, takes_s=0.6) for name in "abc")
        d, e, f = (job(name, Lane.LAST, takes_s=0.6) for name in "def")

        run_side_by_side([d, e, f, a, b, c], tmp_path)

        for one, other, last in ((a, b, c), (d, e, f)):
            assert overlap(one, other)
            assert last.began_s >= min(one.ended_s, other.ended_s)
        assert min(d.began_s, e.began_s) >= max(a.ended_s, b.ended_s, c.ended_s)

    def test_begins_with_what_comes_first_while_something_is_fetched(self, tmp_path: Path) -> None:
        check, demo = job("check", Lane.FIRST, takes_s=0.6), job("demo", Lane.FIRST, takes_s=0.6)
        fetched = job("fetched", Lane.FETCHES, takes_s=0.3)
        suite = job("suite", Lane.BESIDE, "check", "fetched")

        run_side_by_side([check, demo, fetched, suite], tmp_path)

        assert overlap(check, demo)
        assert overlap(check, fetched)
        assert suite.began_s >= max(check.ended_s, demo.ended_s, fetched.ended_s)


class TestOneThatFails:
    def test_keeps_those_away_that_need_it_and_no_others(self, tmp_path: Path) -> None:
        fetched = job("fetched", Lane.FETCHES, code=3)
        in_vain = job("in vain", Lane.BESIDE, "fetched")
        alone, other = job("alone", Lane.LAST, "fetched"), job("other", Lane.LAST, "in vain else")

        run_side_by_side([fetched, in_vain, alone, other], tmp_path)

        assert [one.code for one in (fetched, in_vain, alone, other)] == [3, None, None, 0]
        assert in_vain.is_over
        assert in_vain.process is None

    def test_ends_what_is_fetched_for_nobody_any_more(self, tmp_path: Path) -> None:
        check = job("check", Lane.FIRST, code=1)
        fetched = job("fetched", Lane.FETCHES, takes_s=60)
        suite = job("suite", Lane.BESIDE, "check", "fetched")
        began_s = time.monotonic()

        run_side_by_side([check, fetched, suite], tmp_path)

        assert time.monotonic() - began_s < 30
        assert fetched.process is not None
        assert fetched.process.poll() is not None


class TestWhatTheySay:
    def test_is_never_mixed_and_stands_in_their_order(
        self, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        run_side_by_side([job("a", takes_s=0.5), job("b", takes_s=0.2), job("c")], tmp_path)

        said = capfdbinary.readouterr().out.decode()
        told = [line for line in said.splitlines() if line.endswith((" begins", " ends"))]
        assert told == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]

    @pytest.mark.parametrize(("code", "is_told"), [(0, False), (1, True)])
    def test_of_what_was_fetched_is_told_only_where_that_failed(
        self, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], code: int, is_told: bool
    ) -> None:
        fetched = job("fetched", Lane.FETCHES, code=code)

        run_side_by_side([fetched, job("suite", Lane.BESIDE, "fetched")], tmp_path)

        said = capfdbinary.readouterr().out
        assert (b"fetched ends" in said) is is_told
        assert said.count(b"Waiting for fetched ...") == 1


class TestAnInterrupt:
    def test_ends_all_that_were_started(self, tmp_path: Path) -> None:
        notes = [tmp_path / "a", tmp_path / "b"]
        started = subprocess.Popen(
            [sys.executable, "-c", SLEEPS, *map(str, notes)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with ending(started) as running:
            wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)

        assert running.returncode == -signal.SIGINT
        assert not any(Path(f"/proc/{note.read_text().strip()}").exists() for note in notes)

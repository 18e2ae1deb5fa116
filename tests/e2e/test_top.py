"""``gpumon top`` beside a real daemon, and without one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.programs import ran_python

ROW = re.compile(r"^GPU \d", re.MULTILINE)
PROGRAM = """
import json, sys
from gpumon.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, *sys.modules]), file=sys.stderr)
"""


def top(
    *words: str, environ: Mapping[str, str], stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpumon", "top", *words],
        env=dict(environ), stdin=stdin, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with RunningDaemon(folder, "--source", "simulated:eight") as running:
        yield running


class TestOneScreen:
    def test_is_printed_from_the_daemon_of_this_machine(self, daemon: RunningDaemon) -> None:
        done = top("-1", environ=daemon.environ)

        assert done.returncode == 0, done.stderr
        assert len(ROW.findall(done.stdout)) == 8
        assert f"daemon at {daemon.address}" in done.stdout
        assert "simulated GPUs" in done.stdout
        assert "\x1b" not in done.stdout

    def test_is_printed_from_a_daemon_that_is_named(
        self, daemon: RunningDaemon, tmp_path: Path
    ) -> None:
        elsewhere = {**daemon.environ, "GPUMON_RUNTIME_DIR": str(tmp_path)}
        done = top("-1", "--connect", daemon.address, environ=elsewhere)

        assert done.returncode == 0, done.stderr
        assert len(ROW.findall(done.stdout)) == 8

    def test_needs_no_textual(self, daemon: RunningDaemon) -> None:
        done = ran_python("-c", PROGRAM, "top", "-1", environ=daemon.environ)
        code, *modules = json.loads(done.stderr.splitlines()[-1])

        assert code == 0
        assert [name for name in modules if name.partition(".")[0] in ("textual", "pynvml")] == []
        assert [name for name in modules if name.startswith("gpumon.pipeline.monitor")] == []

    def test_ends_quietly_when_its_reader_has(self, daemon: RunningDaemon) -> None:
        shell = f"{sys.executable} -m gpumon top -1 | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", shell], env=daemon.environ, capture_output=True, text=True, check=True
        )

        assert done.stdout.splitlines()[-1] == "0"
        assert done.stderr == ""

    def test_watches_a_source_itself_and_says_so(self, tmp_path: Path) -> None:
        environ = {**RunningDaemon(tmp_path).environ, "COLUMNS": "150"}
        done = top("-1", "--source", "simulated:mig", "--period", "0.2", environ=environ)

        assert done.returncode == 0, done.stderr
        assert "watching simulated:mig in this process" in done.stdout
        assert re.search(r"^GPU 0:0 ", done.stdout, re.MULTILINE)

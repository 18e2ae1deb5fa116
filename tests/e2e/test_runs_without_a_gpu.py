"""A training run that is joined to no GPU reads of it, and the report says why and what to set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.patience import wait_until
from tests.programs import ran_python

IMPORTS = "import time\nfrom trainer_hooks import phase, step, timed\n"
LOOPS = {
    "phase": "for _ in range(5):\n    with phase('train_step'): time.sleep(0.02)\n    step()",
    "timed": "for _ in timed(range(5)):\n    time.sleep(0.02)\n    step()",
}


def train(runtime: Path, loop: str, **environ: str) -> str:
    """Train in a process of its own; what it says on stderr."""
    environ["GPUMON_RUNTIME_DIR"] = str(runtime)
    done = ran_python("-c", IMPORTS + LOOPS[loop], environ=environ)
    assert done.returncode == 0
    return done.stderr


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with RunningDaemon(folder, "--source", "simulated:input-bound", "--period", "0.5") as one:
        yield one


def note_of(daemon: RunningDaemon, run: str) -> str:
    def notes() -> list[str]:
        return [note for note in daemon.report()["notes"] if note.startswith(f"Run {run} ")]

    wait_until(lambda: bool(notes()))
    return notes()[0]


class TestARunThatNamesAGpuThatIsNotThere:
    @pytest.mark.parametrize("loop", LOOPS)
    @pytest.mark.parametrize(("name", "as_said"), [("99", "GPU 99"), ("cuda:0", "'cuda:0'")])
    def test_is_reported_so_and_the_report_says_it_too(
        self, daemon: RunningDaemon, loop: str, name: str, as_said: str
    ) -> None:
        run = f"{loop}-{name}".replace(":", "")
        printed = train(daemon.runtime_dir, loop, GPUMON_GPUS=name, GPUMON_RUN=run)

        expected = rf"names {as_said}, .*\bGPUs 0 and 1: set GPUMON_GPUS"
        assert printed.count("RuntimeWarning") == 1
        assert re.search(expected, printed)
        assert re.search(expected, note_of(daemon, run))


class TestARunThatSaysNothingOnASimulatedSource:
    def test_is_reported_what_to_set(self, daemon: RunningDaemon) -> None:
        printed = train(daemon.runtime_dir, "timed", GPUMON_RUN="mute")

        assert printed.count("RuntimeWarning") == 1
        for reported in (printed, note_of(daemon, "mute")):
            assert "GPUMON_GPUS=0 " in reported
            assert "gpus=[0] " in reported


class TestARunThatNamesItsGpu:
    @pytest.mark.parametrize("loop", LOOPS)
    def test_prints_nothing(self, daemon: RunningDaemon, loop: str) -> None:
        assert train(daemon.runtime_dir, loop, GPUMON_GPUS="1") == ""

    def test_prints_nothing_without_a_daemon_either(self, tmp_path: Path) -> None:
        assert train(tmp_path, "timed") == ""

"""A training run that is joined to no GPU is warned, and the report notes why and what to set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.programs import ran_python
from tests.waiting import wait_until

IMPORTS = "import time\nfrom trainer_hooks import phase, step, timed\n"
LOOPS = {
    "phase": "for _ in range(5):\n    with phase('train_step'): time.sleep(0.02)\n    step()",
    "timed": "for _ in timed(range(5)):\n    time.sleep(0.02)\n    step()",
}


def train(runtime: Path, loop: str, **environ: str) -> str:
    """Train in a process of its own; return its standard error."""
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
    @pytest.mark.parametrize(
        ("loop", "name", "shown"), [("phase", "99", "GPU 99"), ("timed", "cuda:0", "'cuda:0'")]
    )
    def test_is_warned_and_the_report_has_a_note(
        self, daemon: RunningDaemon, loop: str, name: str, shown: str
    ) -> None:
        printed = train(daemon.runtime_dir, loop, GPUMON_GPUS=name, GPUMON_RUN=loop)

        expected = rf"names {shown}, .*\bGPUs 0 and 1: set GPUMON_GPUS"
        assert printed.count("RuntimeWarning") == 1
        assert re.search(expected, printed)
        assert re.search(expected, note_of(daemon, loop))


class TestARunThatNamesNoGpuOnASimulatedSource:
    def test_learns_what_to_set(self, daemon: RunningDaemon) -> None:
        printed = train(daemon.runtime_dir, "timed", GPUMON_RUN="untagged")

        assert printed.count("RuntimeWarning") == 1
        for reported in (printed, note_of(daemon, "untagged")):
            assert "GPUMON_GPUS=0 " in reported
            assert "gpus=[0] " in reported


class TestARunThatNamesItsGpu:
    def test_is_not_warned(self, daemon: RunningDaemon) -> None:
        assert train(daemon.runtime_dir, "timed", GPUMON_GPUS="1") == ""

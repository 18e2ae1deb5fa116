"""Two users and one GPU under a real daemon: one trains on it, the other only names it."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpumon.sources.process_owners import shows_all_pids
from tests.daemon import RunningDaemon
from tests.e2e.ring_programs import ON_A_WAVE, wave_words
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.other_users import OTHER_UID, as_root, become, hiding, needs_hidepid
from tests.processes import ending
from tests.waiting import wait_until

ADA = 12_345
ROUND_S, BUSY_RATIO = 1.0, 0.6
pytestmark = [
    as_root,
    pytest.mark.skipif(
        not shows_all_pids(Path("/proc")), reason="pids here are not those of the host"
    ),
]

ONLY_NAMES_IT = """
import time
from trainer_hooks import phase, step

with phase("train_step"):
    step(samples=1)
with phase("input_wait"):
    time.sleep(600)
"""


class Machine:
    """A daemon, GPU 0 that Ada trains on, and another user who names it."""

    def __init__(
        self, folder: Path, library: Path, daemon: ExitStack, *, hides_processes: bool
    ) -> None:
        self.folder, self.hides_processes = folder, hides_processes
        self.fake = FakeNvml(folder / "gpus", gpus=2)
        self.uuid = self.fake.uuid(0)
        self.fake.wave(0, period_s=ROUND_S, busy_ratio=BUSY_RATIO)
        self.environ = fake_env(folder / "gpus", library)
        (folder / "run" / "phases").mkdir(parents=True)
        (folder / "run").chmod(0o755)
        (folder / "run" / "phases").chmod(0o1777)
        # No wait for input: while the GPU is idle, it saves.
        words = [*wave_words(self.fake, ROUND_S, BUSY_RATIO, math.inf), "checkpoint"]
        self.ada = self._start("ada", ADA, ON_A_WAVE, *words, on=daemon)
        self.fake.run(0, self.ada.pid)
        self.other = self._start("other", OTHER_UID, ONLY_NAMES_IT, on=daemon)
        self.daemon = daemon.enter_context(
            RunningDaemon(
                folder,
                "--period",
                "0.5",
                environ=self.environ,
                prefix=hiding([]) if hides_processes else (),
            )
        )

    def _start(
        self, name: str, uid: int, program: str, *words: str, on: ExitStack
    ) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(
            [sys.executable, "-c", become(uid) + program, *words],
            env={
                **self.environ,
                "GPUMON_RUN": name,
                "GPUMON_GPUS": "0",
                "GPUMON_RUNTIME_DIR": str(self.folder / "run"),
            },
        )
        on.enter_context(ending(started))
        phases = self.folder / "run" / "phases"
        wait_until(
            lambda: any(ring.name.startswith(f"{started.pid}-") for ring in phases.iterdir())
        )
        return started

    def run(self, name: str) -> dict[str, Any]:
        runs: list[dict[str, Any]] = self.daemon.report()["runs"]
        return next(run for run in runs if run["run"] == name)

    def gpu(self) -> dict[str, Any]:
        gpu: dict[str, Any] = self.daemon.report()["gpus"][0]
        return gpu


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=needs_hidepid)], ids=["", "hidepid=2"]
)
def machine(fake_library: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="gpumon-test-") as name, ExitStack() as stack:
        Path(name).chmod(0o755)  # not below the test's own folder, which others may not enter
        machine = Machine(Path(name), fake_library.parent, stack, hides_processes=request.param)
        wait_until(lambda: bool(machine.run("other")["refused_gpus"]), 30)
        wait_until(lambda: machine.gpu()["idle_by_cause"].get("checkpoint", 0.0) > 2.0, 30)
        yield machine
        machine.fake.close()


class TestAnotherUserWhoNamesTheGpu:
    def test_is_refused_noted_and_counted_and_does_not_starve_it(self, machine: Machine) -> None:
        report, metrics, uuid = machine.daemon.report(), machine.daemon.metrics(), machine.uuid
        gpu, ada, other = report["gpus"][0], machine.run("ada"), machine.run("other")
        (note,) = (one for one in report["notes"] if one.startswith("Run other "))

        assert gpu["starved_seconds"] == gpu["idle_by_cause"].get("input_wait", 0.0) == 0.0
        assert (ada["gpus"], other["gpus"], other["refused_gpus"]) == ([uuid], [], [uuid])
        assert f"(user {OTHER_UID}) names GPU 0, " in note
        assert ("(hidepid)" in note) == machine.hides_processes
        assert metrics[f'gpumon_gpu_claims_refused_total{{uuid="{uuid}"}}'] == 1
        for collector in ("phase_rings", "nvml"):  # no alert
            assert metrics[f'gpumon_collector_success{{collector="{collector}"}}'] == 1

    def test_counts_once_it_does_use_it(self, machine: Machine) -> None:
        machine.fake.start(0, machine.other.pid)

        wait_until(lambda: bool(machine.run("other")["gpus"]), 30)
        wait_until(lambda: machine.gpu()["starved_seconds"] > 0.0, 30)

        assert machine.run("other")["refused_gpus"] == []

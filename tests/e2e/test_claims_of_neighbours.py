"""Two users and one GPU beside a real daemon: one trains on it, one only says so."""

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
from tests.hidden_processes import hiding, needs_hidepid
from tests.neighbours import OTHER_UID, as_root, become
from tests.patience import wait_until
from tests.processes import ending

ADA = 12_345
ROUND_S, BUSY_RATIO = 1.0, 0.6
pytestmark = [
    as_root,
    pytest.mark.skipif(
        not shows_all_pids(Path("/proc")), reason="pids here are not those of the host"
    ),
]

ONLY_SAYS_SO = """
import time
from trainer_hooks import phase, step

with phase("train_step"):
    step(samples=1)
with phase("input_wait"):
    time.sleep(600)
"""


class Machine:
    """A daemon, GPU 0 that Ada trains on, and a stranger who names it."""

    def __init__(
        self, folder: Path, library: Path, daemon: ExitStack, *, hides_processes: bool
    ) -> None:
        self.folder, self.hides_processes = folder, hides_processes
        self.fake = FakeNvml(folder / "gpus", gpus=2)
        self.fake.wave(0, period_s=ROUND_S, busy_ratio=BUSY_RATIO)
        self.environ = fake_env(folder / "gpus", library)
        (folder / "run" / "phases").mkdir(parents=True)
        (folder / "run").chmod(0o755)
        (folder / "run" / "phases").chmod(0o1777)
        # No wait for input: while the GPU is idle, it saves.
        words = [*wave_words(self.fake, ROUND_S, BUSY_RATIO, math.inf), "checkpoint"]
        self.ada = self._start("ada", ADA, ON_A_WAVE, *words, on=daemon)
        self.fake.run(0, self.ada.pid)
        self.stranger = self._start("stranger", OTHER_UID, ONLY_SAYS_SO, on=daemon)
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
        """The one that both name."""
        gpu: dict[str, Any] = self.daemon.report()["gpus"][0]
        return gpu


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=needs_hidepid)], ids=["", "hidepid=2"]
)
def machine(fake_library: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="gpumon-test-") as name, ExitStack() as stack:
        Path(name).chmod(0o755)  # not below the test's own folder, which others may not enter
        machine = Machine(Path(name), fake_library.parent, stack, hides_processes=request.param)
        wait_until(lambda: bool(machine.run("stranger")["refused_gpus"]), 30)
        wait_until(lambda: machine.gpu()["idle_by_cause"].get("checkpoint", 0.0) > 2.0, 30)
        yield machine
        machine.fake.close()


class TestAStrangerWhoNamesTheGpuOfAnother:
    def test_does_not_starve_it(self, machine: Machine) -> None:
        gpu = machine.gpu()

        assert gpu["starved_seconds"] == 0.0
        assert gpu["idle_by_cause"].get("input_wait", 0.0) == 0.0
        assert gpu["idle_by_cause"]["checkpoint"] > 2.0

    def test_has_no_gpu_and_leaves_the_other_its_own(self, machine: Machine) -> None:
        uuid = machine.fake.uuid(0)

        assert machine.run("ada")["gpus"] == [uuid]
        assert machine.run("stranger")["gpus"] == []
        assert machine.run("stranger")["refused_gpus"] == [uuid]

    def test_is_in_a_note(self, machine: Machine) -> None:
        (note,) = (
            one for one in machine.daemon.report()["notes"] if one.startswith("Run stranger ")
        )

        assert f"(user {OTHER_UID}) names GPU 0, " in note
        assert ("(hidepid)" in note) == (machine.hides_processes)

    def test_is_counted_and_pages_no_one(self, machine: Machine) -> None:
        metrics = machine.daemon.metrics()
        uuid = machine.fake.uuid(0)

        assert metrics[f'gpumon_gpu_claims_refused_total{{uuid="{uuid}"}}'] == 1
        assert metrics['gpumon_collector_success{collector="phase_rings"}'] == 1
        assert metrics['gpumon_collector_success{collector="nvml"}'] == 1

    def test_counts_from_when_he_does_use_it(self, machine: Machine) -> None:
        machine.fake.start(0, machine.stranger.pid)

        wait_until(lambda: bool(machine.run("stranger")["gpus"]), 30)
        wait_until(lambda: machine.gpu()["starved_seconds"] > 0.0, 30)

        assert machine.run("stranger")["refused_gpus"] == []

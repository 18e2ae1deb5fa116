"""A training run on one MIG instance beside a real daemon: starved there, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.e2e.ring_programs import ON_A_WAVE, wave_words
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.patience import wait_until
from tests.processes import ending

ROUND_S, BUSY_RATIO = 1.0, 0.6
TRAINED_S = 6.0


class Trained:
    """What was reported of a machine on which one of two instances was trained on."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.fake = fake = FakeNvml(folder / "gpus", gpus=2)
        self.parent = fake.uuid(0)
        self.peer, self.used = fake.cut(0, 2)
        for part in (0, 1):
            fake.part_wave(0, part, period_s=ROUND_S, busy_ratio=BUSY_RATIO)
        environ = fake_env(folder / "gpus", library)
        # It is there before the daemon: whatever lists processes names it from the start.
        with (
            ending(self._start_training(environ)) as training,
            RunningDaemon(folder, "--period", "0.5", environ=environ) as daemon,
        ):
            self.began_s = time.monotonic()
            assert training.wait(60) == 0
            self.ended_s = time.monotonic()
            fake.end(training.pid)
            wait_until(lambda: self.gpu(daemon.report(), self.used)["pending_seconds"] == 0.0)
            self.report, self.metrics = daemon.report(), daemon.metrics()
        fake.close()

    def _start_training(self, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        until_s = time.monotonic() + TRAINED_S
        words = [*wave_words(self.fake, ROUND_S, BUSY_RATIO, until_s), "input_wait"]
        training = subprocess.Popen(
            [sys.executable, "-c", ON_A_WAVE, *words],
            env={**environ, "GPUMON_RUN": "train", "GPUMON_RUNTIME_DIR": str(self.folder / "run")},
        )
        self.fake.run(0, training.pid, part=1)
        return training

    @staticmethod
    def gpu(report: dict[str, Any], uuid: str) -> dict[str, Any]:
        found: dict[str, Any] = next(gpu for gpu in report["gpus"] if gpu["uuid"] == uuid)
        return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, fake_library: Path) -> Trained:
    return Trained(tmp_path_factory.mktemp("mig"), fake_library.parent)


class TestARunOnAnInstance:
    def test_lost_there_what_it_waited_for_its_input(self, trained: Trained) -> None:
        (run,) = trained.report["runs"]
        used = trained.gpu(trained.report, trained.used)

        watched_s = trained.ended_s - trained.began_s
        waited_s = (1 - BUSY_RATIO) * watched_s
        assert run["gpus"] == [trained.used]
        assert used["idle_by_cause"]["input_wait"] == pytest.approx(waited_s, abs=0.8)
        assert used["starved_seconds"] == pytest.approx(waited_s, abs=0.8)
        assert used["busy_seconds"] / used["observed_seconds"] == pytest.approx(BUSY_RATIO, abs=0.1)

    def test_leaves_the_other_instance_alone(self, trained: Trained) -> None:
        peer = trained.gpu(trained.report, trained.peer)

        assert peer["busy_seconds"] > 1.0
        assert peer["starved_seconds"] == peer["suspected_seconds"] == 0.0
        assert peer["idle_by_cause"].get("input_wait", 0.0) == 0.0

    def test_leaves_the_partitioned_gpu_unknown(self, trained: Trained) -> None:
        parent = trained.gpu(trained.report, trained.parent)

        assert parent["observed_seconds"] == parent["idle_seconds"] == 0.0
        assert f'gpumon_gpu_power_watts{{uuid="{trained.parent}"}}' in trained.metrics
        assert f'gpumon_gpu_utilization_ratio{{uuid="{trained.parent}"}}' not in trained.metrics
        assert f'gpumon_gpu_utilization_ratio{{uuid="{trained.used}"}}' in trained.metrics

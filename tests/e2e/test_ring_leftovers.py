"""Trainings nobody runs a daemon for: what they leave behind, take away, and say to their user."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpumon.core.ring.format import RING_BYTES
from gpumon.core.sample import Device, GpuSample
from gpumon.pipeline.gpu_join import GpuJoin
from tests.builders_ring import only, phases_folder
from tests.patience import PATIENCE_S
from tests.trainings import ROOT, TRAINING, process, read, reader_of
from trainer_hooks.ring.dead_rings import MOST_LOOKED_AT

_DAY_S = 24 * 3600
_SCRIPT = """\
from trainer_hooks import phase, step, timed

total = 0
for item in timed(range(50)):
    with phase("train_step"):
        total += item
    step(samples=1)
print(total)
"""
_FIRST_HOOK = 4


def uuids(count: int) -> list[str]:
    return [f"GPU-{n:08x}-d72c-4106-c12f-20bd9faed9f6" for n in range(count)]


def left_behind(phases: Path, count: int, days_ago: float) -> list[Path]:
    """So many files of processes that were killed while they made their rings."""
    then_s = time.time() - days_ago * _DAY_S
    paths = [phases / f"{number}-1.ring" for number in range(count)]
    for path in paths:
        path.touch()
        os.truncate(path, RING_BYTES)
        os.utime(path, (then_s, then_s))
    return paths


def train(script: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    script.write_text(_SCRIPT)
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.fixture
def trainings(tmp_path: Path) -> Iterator[list[int]]:
    """Pids of eight trainings that began at the same time where 300 old rings lay."""
    left_behind(phases_folder(tmp_path), 300, days_ago=2)
    with ExitStack() as running:
        yield [running.enter_context(process(TRAINING, tmp_path)).pid for _ in range(8)]


class TestRingsThatNobodyRemoves:
    def test_are_taken_away_by_the_trainings_that_come_after(
        self, tmp_path: Path, trainings: list[int]
    ) -> None:
        left = [path.name for path in (tmp_path / "phases").iterdir()]
        alive = {run.host_pid for run in read(reader_of(tmp_path)).rings if run.alive}

        assert alive == set(trainings)
        assert len(left) < 300 + len(trainings) - MOST_LOOKED_AT

    def test_stay_while_they_are_young_or_their_process_lives(self, tmp_path: Path) -> None:
        young = left_behind(phases_folder(tmp_path), 20, days_ago=0.5)
        with process(TRAINING, tmp_path) as living, process(TRAINING, tmp_path) as dying:
            dying.kill()
            dying.wait(PATIENCE_S)
            for ring in (tmp_path / "phases").glob(f"{living.pid}-*"):
                os.utime(ring, (0, 0))
            with process(TRAINING, tmp_path) as newest:
                found = {run.host_pid: run.alive for run in read(reader_of(tmp_path)).rings}

        assert all(path.exists() for path in young)
        assert found == {living.pid: True, dying.pid: False, newest.pid: True}


class TestATrainingOnManyGpus:
    def test_is_joined_to_each_that_cuda_lets_it_use(self, tmp_path: Path) -> None:
        gpus = [GpuSample(Device(uuid=u, index=n)) for n, u in enumerate(uuids(20))]
        visible = ",".join(uuids(16))

        with process(TRAINING, tmp_path, environ={"CUDA_VISIBLE_DEVICES": visible}):
            run = only(read(reader_of(tmp_path)))

        assert GpuJoin(gpus, simulated=False).gpus_of(run) == set(uuids(16))

    def test_whose_list_is_too_long_is_told_so_once(self, tmp_path: Path) -> None:
        visible = ",".join(uuids(300))
        script = tmp_path / "train.py"

        done = train(script, CUDA_VISIBLE_DEVICES=visible, GPUMON_RUNTIME_DIR=str(tmp_path / "a"))

        assert (done.returncode, done.stdout) == (0, "1225\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert done.stderr.startswith(f"{script}:{_FIRST_HOOK}: RuntimeWarning: ")
        assert "GPUMON_GPUS=0,1" in done.stderr


class TestATrainingThatFindsNoFolder:
    @pytest.mark.parametrize("kind", ["file", "link", "open to all"])
    def test_is_told_at_its_own_line_what_to_do(self, tmp_path: Path, kind: str) -> None:
        runtime, script = tmp_path / "runtime", tmp_path / "train.py"
        if kind == "file":
            runtime.touch()
        elif kind == "link":
            runtime.symlink_to(tmp_path)
        else:
            runtime.mkdir()
            runtime.chmod(0o777)

        done = train(script, GPUMON_RUNTIME_DIR=str(runtime))

        assert (done.returncode, done.stdout) == (0, "1225\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert done.stderr.startswith(f"{script}:{_FIRST_HOOK}: RuntimeWarning: ")
        assert str(runtime) in done.stderr
        assert "set GPUMON_RUNTIME_DIR" in done.stderr

"""Ranks that a real torchrun starts: one ring each, one job, told apart by their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import ran_python
from tests.trainings import ROOT, read, reader_of

pytestmark = pytest.mark.keras_torch

RANK = """
import os
from trainer_hooks import phase, step
for _ in range(1 + int(os.environ["RANK"])):
    with phase("train_step"):
        pass
    step(samples=4)
"""


def torchrun(folder: Path, *words: str) -> None:
    script = folder / "ranks.py"
    script.write_text(RANK)
    environ = {
        "GPUMON_RUNTIME_DIR": str(folder / "run"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = ("-m", "torch.distributed.run", "--nproc-per-node", "2", *words)
    done = ran_python(*command, script, environ=environ, timeout_s=240)
    assert done.returncode == 0, done.stderr


def test_ranks_of_torchrun_are_runs_of_one_job(tmp_path: Path) -> None:
    torchrun(tmp_path, "--standalone")
    rings = sorted(read(reader_of(tmp_path / "run")).rings, key=lambda run: run.facts.rank)

    assert [(run.facts.run, run.steps, run.samples) for run in rings] == [
        ("ranks-r0", 1, 4),
        ("ranks-r1", 2, 8),
    ]
    assert {run.facts.world_size for run in rings} == {2}
    assert len({run.facts.job for run in rings}) == 1
    assert rings[0].facts.job


def test_ranks_of_a_named_torchrun_job_bear_its_name(tmp_path: Path) -> None:
    torchrun(tmp_path, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id",
             "resnet-7")  # fmt: skip

    assert {run.facts.job for run in read(reader_of(tmp_path / "run")).rings} == {"resnet-7"}

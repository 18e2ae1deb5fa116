"""Ranks that a real torchrun starts: one ring each, one job, distinguished by their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import ran_python
from tests.training_processes import ROOT, read, reader_of

pytestmark = pytest.mark.keras_torch

RANK = """
import os
from trainer_hooks import phase, step
for _ in range(1 + int(os.environ["RANK"])):
    with phase("train_step"):
        pass
    step(samples=4)
"""


# A named job: one that torchrun names itself bears a number.
NAMED = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", "resnet-7")


def test_ranks_of_torchrun_are_runs_of_the_job_that_it_names(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANK)
    environ = {
        "GPUMON_RUNTIME_DIR": str(tmp_path / "run"), "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = ("-m", "torch.distributed.run", "--nproc-per-node", "2", *NAMED)
    done = ran_python(*command, script, environ=environ, timeout_s=240)
    assert done.returncode == 0, done.stderr

    rings = sorted(read(reader_of(tmp_path / "run")).rings, key=lambda run: run.facts.rank)
    assert [(run.facts.run, run.steps, run.samples) for run in rings] == [
        ("ranks-r0", 1, 4),
        ("ranks-r1", 2, 8),
    ]
    assert {(run.facts.job, run.facts.world_size) for run in rings} == {("resnet-7", 2)}

"""Training runs whose runtime folder is removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gpumon.core.ring_format.format import RING_BYTES
from tests.daemon import RunningDaemon
from tests.faults.conftest import SERVE, remove_folder_of
from tests.needs import with_a_mount
from tests.other_users import as_root, become
from tests.training_processes import ROOT, TRAINING, process, run_to_its_end
from tests.waiting import PATIENCE_S

GOES_ON = """
import sys, time
from trainer_hooks import phase, step, timed
total = 0
for item in timed(range(40)):
    with phase("train_step"):
        total += item
    step(samples=1)
    if item == 5:
        print("there", flush=True)
        sys.stdin.readline()
print(total, flush=True)
"""


def living(state: dict[str, Any]) -> Sequence[int]:
    return [run["pid"] for run in state["runs"] if run["alive"]]


class TestATrainingRun:
    def test_continues_when_its_ring_is_removed(self, daemon: RunningDaemon) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", GOES_ON],
            cwd=ROOT, env={**daemon.environ, "PYTHONPATH": str(ROOT), "GPUMON_GPUS": "0"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as training:  # fmt: skip
            assert training.stdout is not None
            assert training.stdout.readline() == "there\n"
            remove_folder_of(daemon)
            printed, complained = training.communicate("\n", timeout=PATIENCE_S)

        assert (training.returncode, printed, complained) == (0, "780\n", "")

    def test_that_started_before_the_daemon_is_read(self, tmp_path: Path) -> None:
        running = RunningDaemon(tmp_path, *SERVE)
        with process(TRAINING, running.runtime_dir) as training, running:
            running.wait_for(lambda state: training.pid in living(state), 5.0)

    @as_root
    def test_uses_another_folder_after_its_session_has_ended(self, tmp_path: Path) -> None:
        """As with ``nohup`` after a logout: ``$XDG_RUNTIME_DIR`` does not exist any more."""
        uid = 54_322
        other = Path(f"/tmp/gpumon-{uid}")
        environ = {"GPUMON_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": str(tmp_path / "gone")}
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, other, ignore_errors=True)
            without_daemon = with_a_mount("-t tmpfs none /run")
            training = stack.enter_context(
                process(become(uid) + TRAINING, tmp_path, before=without_daemon, environ=environ)
            )
            assert list((other / "phases").glob(f"{training.pid}-*.ring"))


class TestAFolderThatIsRemovedWhileARingIsCreated:
    def test_is_created_again(self, tmp_path: Path) -> None:
        """The folder is removed after it was chosen and before the ring is created."""
        script = """
import os, shutil, sys
from trainer_hooks import phase, step
from trainer_hooks.ring import process_ring
sweep = process_ring.sweep_dead_rings
def sweep_and_remove(phases, **named):
    process_ring.sweep_dead_rings = sweep
    sweep(phases, **named)
    shutil.rmtree(phases.parent)
process_ring.sweep_dead_rings = sweep_and_remove
with phase("train_step"):
    step()
phases = os.environ["GPUMON_RUNTIME_DIR"] + "/phases"
print([os.path.getsize(f"{phases}/{name}") for name in os.listdir(phases)])
"""
        done = run_to_its_end(script, tmp_path / "a")

        assert (done.returncode, done.stdout, done.stderr) == (0, f"[{RING_BYTES}]\n", "")

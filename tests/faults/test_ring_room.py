"""A training run without space for its ring: it continues, with one warning."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring_format.format import RING_BYTES
from tests.needs import with_a_mount
from tests.other_users import as_root
from tests.training_processes import run_to_its_end
from tests.waiting import PATIENCE_S

NO_ROOM = os.strerror(errno.ENOSPC)
TRAINING = """
import os, resource, sys
if sys.argv[1] != "unlimited":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from trainer_hooks import phase, step, timed
total = 0
for item in timed(range(50)):
    with phase("train_step"):
        total += item
    step(samples=1)
folder = os.environ["GPUMON_RUNTIME_DIR"] + "/phases"
print(total, sorted(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder)))
"""


FILLS_THE_DISK = TRAINING.replace(
    "total = 0",
    """step()
with open(os.environ["GPUMON_RUNTIME_DIR"] + "/filler", "wb") as file:
    try:
        while True:
            file.write(bytes(1 << 16)); file.flush()
    except OSError:
        pass
from trainer_hooks.ring.process_ring import process_ring
for _ in range(70_000):
    process_ring().writer.event(1)
total = 0""",
)


def on_a_disk_of(runtime: Path, size_bytes: int, mode: str = "0700") -> tuple[str, ...]:
    """A prefix for a command that mounts a file system of that size there, for it alone."""
    runtime.mkdir(exist_ok=True)
    return with_a_mount(f'-t tmpfs -o size={size_bytes},mode={mode} none "{runtime}"')


class TestNoSpaceForARing:
    @pytest.mark.parametrize(
        ("disk", "limit", "reason"),
        [
            pytest.param((RING_BYTES // 2,), "unlimited", errno.ENOSPC, id="on a full disk"),
            pytest.param((2 * RING_BYTES, "0700,nr_inodes=2"), "unlimited", errno.ENOSPC,
                         id="for one more file"),
            pytest.param(None, str(RING_BYTES // 2), errno.EFBIG, id="within a user's limit"),
        ],
    )  # fmt: skip
    def test_costs_a_training_run_only_its_phases(
        self, tmp_path: Path, disk: tuple[Any, ...] | None, limit: str, reason: int
    ) -> None:
        before = () if disk is None else on_a_disk_of(tmp_path / "run", *disk)

        done = run_to_its_end(TRAINING, tmp_path / "run", limit, before=before)

        assert (done.returncode, done.stdout) == (0, "1225 []\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert "no phases" in done.stderr
        assert os.strerror(reason) in done.stderr

    def test_on_a_disk_that_fills_later_ends_no_run(self, tmp_path: Path) -> None:
        """A ring is allocated completely at its start, so a full disk cannot kill its writer."""
        before = on_a_disk_of(tmp_path / "filling", RING_BYTES + (256 << 10))
        done = run_to_its_end(FILLS_THE_DISK, tmp_path / "filling", "unlimited", before=before)

        assert (done.returncode, done.stdout) == (0, f"1225 [{RING_BYTES}]\n")


IN_A_SHARED_FOLDER = """
import json, subprocess, sys
from pathlib import Path
from tests.daemon import RunningDaemon
from tests.other_users import become
from tests.waiting import wait_until
from tests.training_processes import TRAINING, process

folder, runtime = Path(sys.argv[1]), Path(sys.argv[2])
(runtime / "phases").mkdir()
(runtime / "phases").chmod(0o1777)

def serve(*words):
    return RunningDaemon(folder, *words, runtime_dir=runtime, ready=False)

def output_of_a_neighbour(program):
    program = become(65534, "sys, pathlib") + program
    words = [sys.executable, "-c", program, str(runtime)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
"""

FILLED = (
    IN_A_SHARED_FOLDER
    + """
(folder / "busy.jsonl").touch()
fill = '''
with open(sys.argv[1] + "/phases/filler", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(1 << 12))
    except OSError as error:
        print(error.strerror)
'''
daemon = serve("--source", f"follow:{folder / 'busy.jsonl'}", "--period", "0.25")
success = 'gpumon_collector_success{collector="%s"}'
with daemon, process(TRAINING, runtime):
    wait_until(daemon.state_file.exists)
    daemon.wait_for(lambda state: any(run["alive"] for run in state["runs"]))
    filled = output_of_a_neighbour(fill)
    wait_until(lambda: daemon.metrics()[success % "state_file"] == 0)
    before = daemon.metrics()["gpumon_samples_total"]
    wait_until(lambda: daemon.metrics()["gpumon_samples_total"] > before + 4)
    full, left = daemon.metrics(), sorted(path.name for path in runtime.iterdir())
    kept = json.loads(daemon.state_file.read_text())["schema"]
    (runtime / "phases" / "filler").unlink()
    wait_until(lambda: daemon.metrics()[success % "state_file"] == 1)
    again = daemon.state()
print(json.dumps({
    "filled": filled, "kept": kept, "left": left, "rings": full[success % "phase_rings"],
    "info": [name for name in full if name.startswith("gpumon_training_steps_total{")],
    "again": [run["alive"] for run in again["runs"]], "log": daemon.log(),
}))
"""
)


RESTARTED = (
    IN_A_SHARED_FOLDER
    + """
crowd = '''
try:
    for number in range(100_000):
        open(f"{sys.argv[1]}/phases/{number}", "x").close()
except OSError as error:
    print(error.strerror)
'''
with serve("--source", "simulated:healthy") as first:
    wait_until(first.state_file.exists)
crowded = output_of_a_neighbour(crowd)
with serve("--source", "simulated:healthy") as second:
    wait_until(lambda: "metrics" in second.log() or second.process.poll() is not None)
    outcome = {"crowded": crowded, "log": second.log(), "ended": second.process.poll()}
print(json.dumps(outcome))
"""
)


@as_root
class TestAFileSystemThatAnotherUserFilled:
    def test_does_not_prevent_a_daemon_from_restarting(self, tmp_path: Path) -> None:
        reported = _output_on_a_disk_of(RING_BYTES, "0755,nr_inodes=64", RESTARTED, tmp_path)

        assert reported["crowded"] == NO_ROOM
        assert reported["ended"] is None, reported["log"]

    def test_costs_the_daemon_only_its_state_file(self, tmp_path: Path) -> None:
        reported = _output_on_a_disk_of(2 * RING_BYTES, "0755", FILLED, tmp_path)

        assert reported["filled"] == NO_ROOM
        assert reported["rings"] == 1
        assert len(reported["info"]) == 1
        assert reported["left"] == ["daemon", "phases", "state.json"]
        assert reported["kept"] == "gpumon.state/1"
        assert reported["again"] == [True]
        assert reported["log"].count(NO_ROOM) == 2  # the warning, and the collector
        assert "Traceback" not in reported["log"]


def _output_on_a_disk_of(size_bytes: int, mode: str, program: str, folder: Path) -> Any:
    """Run a program whose runtime folder is a file system of that size; return its output."""
    with tempfile.TemporaryDirectory(prefix="gpumon-test-") as name:
        runtime = Path(name)
        runtime.chmod(0o755)
        before, places = on_a_disk_of(runtime, size_bytes, mode), (str(folder), str(runtime))
        done = run_to_its_end(program, runtime, *places, before=before, timeout_s=3 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])

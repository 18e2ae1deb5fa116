"""A training whose ring finds no room: it goes on, says so once, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring.format import RING_BYTES
from tests.needs import needed
from tests.neighbours import as_root
from tests.patience import PATIENCE_S
from tests.trainings import ROOT

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


def train(
    runtime: Path, limit: str = "unlimited", before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-c", TRAINING, limit],
        cwd=ROOT,
        env={**os.environ, "GPUMON_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


class TestNoRoomForARing:
    def test_on_a_full_disk_costs_a_training_its_phases_and_nothing_else(
        self, tmp_path: Path
    ) -> None:
        runtime = tmp_path / "full"
        runtime.mkdir()
        done = train(runtime, before=_on_a_disk_of(runtime, RING_BYTES // 2))

        assert (done.returncode, done.stdout) == (0, "1225 []\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert "gpumon records no phases of this process" in done.stderr
        assert "No space left on device" in done.stderr

    def test_for_one_more_file_costs_it_no_more(self, tmp_path: Path) -> None:
        runtime = tmp_path / "crowded"
        runtime.mkdir()
        done = train(runtime, before=_on_a_disk_of(runtime, 2 * RING_BYTES, "0700,nr_inodes=2"))

        assert (done.returncode, done.stdout) == (0, "1225 []\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert "No space left on device" in done.stderr

    def test_that_just_suffices_is_used(self, tmp_path: Path) -> None:
        runtime = tmp_path / "small"
        runtime.mkdir()
        done = train(runtime, before=_on_a_disk_of(runtime, RING_BYTES + (64 << 10)))

        assert (done.returncode, done.stdout) == (0, f"1225 [{RING_BYTES}]\n")
        assert done.stderr == ""

    def test_within_the_limit_of_a_user_costs_it_no_more(self, tmp_path: Path) -> None:
        done = train(tmp_path / "run", limit=str(RING_BYTES // 2))

        assert (done.returncode, done.stdout) == (0, "1225 []\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert "File too large" in done.stderr

    def test_beside_a_disk_that_fills_up_later_ends_no_training(self, tmp_path: Path) -> None:
        """Every byte of a ring is there from the start: a full disk cannot kill its writer."""
        runtime = tmp_path / "filling"
        runtime.mkdir()
        fill = TRAINING.replace(
            "total = 0",
            "step()\n"
            "with open(os.environ['GPUMON_RUNTIME_DIR'] + '/filler', 'wb') as file:\n"
            "    try:\n"
            "        while True:\n"
            "            file.write(bytes(1 << 16)); file.flush()\n"
            "    except OSError:\n"
            "        pass\n"
            "from trainer_hooks.ring.process_ring import process_ring\n"
            "for _ in range(70_000):\n"
            "    process_ring().writer.event(1)\n"
            "total = 0",
        )
        before = _on_a_disk_of(runtime, RING_BYTES + (256 << 10))
        done = subprocess.run(
            [*before, sys.executable, "-c", fill, "unlimited"],
            cwd=ROOT,
            env={**os.environ, "GPUMON_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

        assert (done.returncode, done.stdout) == (0, f"1225 [{RING_BYTES}]\n")


DAEMON = """
import json, os, subprocess, sys, time
from pathlib import Path
from tests.daemon import RunningDaemon
from tests.neighbours import become
from tests.patience import wait_until
from tests.trainings import TRAINING, process

folder, runtime = Path(sys.argv[1]), Path(sys.argv[2])
(runtime / "phases").mkdir()
(runtime / "phases").chmod(0o1777)
(folder / "busy.jsonl").touch()
fill = become(65534, "sys, pathlib") + '''
with open(sys.argv[1] + "/phases/filler", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(1 << 12))
    except OSError as error:
        print(error.strerror)
'''
words = ("--source", f"follow:{folder / 'busy.jsonl'}", "--period", "0.25")
daemon = RunningDaemon(folder, *words, environ={"GPUMON_RUNTIME_DIR": str(runtime)}, ready=False)
daemon.runtime_dir = runtime
success = 'gpumon_collector_success{collector="%s"}'
with daemon, process(TRAINING, runtime):
    wait_until(daemon.state_file.exists)
    daemon.wait_for(lambda state: any(run["alive"] for run in state["runs"]))
    filled = subprocess.run(
        [sys.executable, "-c", fill, str(runtime)], capture_output=True, text=True, check=True
    ).stdout.strip()
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


RESTARTED = """
import json, os, subprocess, sys
from pathlib import Path
from tests.daemon import RunningDaemon
from tests.neighbours import become
from tests.patience import wait_until

folder, runtime = Path(sys.argv[1]), Path(sys.argv[2])
(runtime / "phases").mkdir()
(runtime / "phases").chmod(0o1777)
crowd = become(65534, "sys, pathlib") + '''
try:
    for number in range(100_000):
        open(f"{sys.argv[1]}/phases/{number}", "x").close()
except OSError as error:
    print(error.strerror)
'''

def daemon():
    words, environ = ("--source", "simulated:healthy"), {"GPUMON_RUNTIME_DIR": str(runtime)}
    served = RunningDaemon(folder, *words, environ=environ, ready=False)
    served.runtime_dir = runtime
    return served

with daemon() as first:
    wait_until(first.state_file.exists)
crowded = subprocess.run(
    [sys.executable, "-c", crowd, str(runtime)], capture_output=True, text=True, check=True
).stdout.strip()
with daemon() as second:
    wait_until(lambda: "metrics" in second.log() or second.process.poll() is not None)
    print(json.dumps({"crowded": crowded, "log": second.log(), "ended": second.process.poll()}))
"""


@as_root
class TestAMemoryThatANeighbourFilled:
    def test_keeps_no_daemon_from_starting_anew(self, tmp_path: Path) -> None:
        told = _told_on_a_disk_of(RING_BYTES, "0755,nr_inodes=64", RESTARTED, tmp_path)

        assert told["crowded"] == "No space left on device"
        assert told["ended"] is None, told["log"]

    def test_costs_the_daemon_its_state_file_and_nothing_else(self, tmp_path: Path) -> None:
        told = _told_on_a_disk_of(2 * RING_BYTES, "0755", DAEMON, tmp_path)

        assert told["filled"] == "No space left on device"
        assert told["rings"] == 1
        assert len(told["info"]) == 1
        assert told["left"] == ["daemon", "phases", "state.json"]
        assert told["kept"] == "gpumon.state/1"
        assert told["again"] == [True]
        assert told["log"].count("No space left on device") == 2  # the warning, and the collector
        assert "Traceback" not in told["log"]


def _told_on_a_disk_of(size_bytes: int, mode: str, program: str, folder: Path) -> Any:
    """What a program prints at its end whose runtime folder is a file system of that size."""
    with tempfile.TemporaryDirectory(prefix="gpumon-test-") as name:
        runtime = Path(name)
        runtime.chmod(0o755)
        before = _on_a_disk_of(runtime, size_bytes, mode=mode)
        done = subprocess.run(
            [*before, sys.executable, "-c", program, str(folder), str(runtime)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _on_a_disk_of(folder: Path, size_bytes: int, mode: str = "0700") -> tuple[str, ...]:
    """Words before a command that give it a file system of that size there, for itself alone."""
    needed("unshare", "util-linux")
    mount = f'mount -t tmpfs -o size={size_bytes},mode={mode} none "{folder}" && exec "$@"'
    words = ("unshare", "--mount", "sh", "-c", mount, "sh")
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"not permitted here: mount -t tmpfs ({done.stderr.strip()})")
    return words

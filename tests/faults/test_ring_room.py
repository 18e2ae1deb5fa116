"""A training whose ring finds no room: it goes on, says so once, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.core.ring_format import RING_BYTES
from tests.needs import needed
from tests.trainings import PATIENCE_S, ROOT

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


def _on_a_disk_of(folder: Path, size_bytes: int) -> tuple[str, ...]:
    """Words before a command that give it a file system of that size there, for itself alone."""
    needed("unshare", "util-linux")
    mount = f'mount -t tmpfs -o size={size_bytes},mode=0700 none "{folder}" && exec "$@"'
    words = ("unshare", "--mount", "sh", "-c", mount, "sh")
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"not permitted here: mount -t tmpfs ({done.stderr.strip()})")
    return words

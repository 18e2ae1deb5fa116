"""Programs that users of one machine run in a shared folder of rings."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.daemon import RunningDaemon
from tests.fakenvml.control import FakeNvml
from tests.other_users import become

THIRD_UID = 54_321

_NAMES = """
import sys
from pathlib import Path
from gpumon.sources.system_clock import read_boot_id
from tests.builders.ring import dead_rings, phases_folder, run_facts, sparse_ring
def runs():
    for number in range(int(sys.argv[2])):
        yield run_facts(run=f"run-{number}", pid=100_000 + number, boot_id=read_boot_id())
"""
_MODULES = "sys, shutil, pathlib, tests.builders.ring, gpumon.sources.system_clock"
"""Imports before the program changes to a user who cannot read the checkout."""

MANY = f"""{_NAMES}
made = []
for number, facts in enumerate(runs()):
    made.append(sparse_ring(phases_folder(Path(sys.argv[1])), facts))
    made[-1].step(number, number)
print("there", flush=True)
for line in sys.stdin:
    for writer in made:
        writer.step(1, 1)
    print("stepped", flush=True)
"""
"""One process that holds many rings, and so all their locks."""

DEAD = f"""{_NAMES}
dead_rings(Path(sys.argv[1]) / "phases", runs())
"""
"""Rings whose locks are free."""

JUNK = """
import sys
from pathlib import Path
phases = Path(sys.argv[1]) / "phases"
for number in range(int(sys.argv[2])):
    (phases / sys.argv[3].format(number)).write_bytes(sys.argv[4].encode())
print("there", flush=True)
sys.stdin.read()
"""
"""Files of that name and content."""

ON_A_WAVE = """
import sys, time
from trainer_hooks import phase, step
origin_s, round_s, busy_s, until_s = map(float, sys.argv[1:5])
while (now_s := time.monotonic()) < until_s:
    at_s = (now_s - origin_s) % round_s
    with phase("train_step" if at_s < busy_s else sys.argv[5]):
        time.sleep(busy_s - at_s if at_s < busy_s else round_s - at_s)
    step(samples=1)
"""
"""Computes while the wave of the fake driver makes its GPU busy; otherwise is in that phase."""


def wave_words(fake: FakeNvml, round_s: float, busy_ratio: float, until_s: float) -> list[str]:
    """The arguments of ``ON_A_WAVE`` for the wave; the phase follows them."""
    return [*map(repr, (fake.control.origin_ns / 1e9, round_s, round_s * busy_ratio, until_s))]


def by(uid: int, program: str, more: str = "trainer_hooks") -> str:
    """The program, run as that user; ``more`` are further imports of it."""
    return become(uid, f"{_MODULES}, {more}") + program


def answer(training: subprocess.Popen[str], line: str = "go") -> str:
    """Send a line to a program and return the line it answers."""
    assert training.stdin is not None
    assert training.stdout is not None
    print(line, file=training.stdin, flush=True)
    return training.stdout.readline()


def daemon_in(runtime: Path, folder: Path, source: str) -> RunningDaemon:
    """A daemon with a shared runtime folder, and its log in a folder of the test."""
    words = ("--source", source, "--period", "0.25")
    daemon = RunningDaemon(folder, *words, environ={"GPUMON_RUNTIME_DIR": str(runtime)})
    daemon.runtime_dir = runtime
    return daemon

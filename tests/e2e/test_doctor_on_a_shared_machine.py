"""The doctor's report on training runs, whatever other users leave in the folder of rings."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli.doctor.findings import Finding
from gpumon.cli.doctor.machine import machine_findings
from gpumon.core.ring_format.format import RING_BYTES
from tests.builders.state import StoppedClock
from tests.e2e.ring_programs import DEAD, JUNK, THIRD_UID, by, daemon_in
from tests.other_users import OTHER_UID, as_root, shared_runtime_folder
from tests.programs import ran_python
from tests.training_processes import TRAINING, process
from tests.waiting import wait_until

pytestmark = as_root

A_YEAR_AGO_S = time.time() - 365 * 86_400

COPIES = """
import shutil, sys
from pathlib import Path
phases = Path(sys.argv[1]) / "phases"
for ring in list(phases.iterdir()):
    for number in range(int(sys.argv[2])):
        shutil.copyfile(ring, phases / f"{number}-2.ring")
"""

PRINT_RINGS = """
from gpumon.cli.doctor.machine import machine_findings
for finding in machine_findings():
    if finding.name.startswith("rings"):
        print(finding.detail)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_runtime_folder() as runtime:
        yield runtime


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped clock, so that a busy machine does not make the doctor give up early."""
    stopped = StoppedClock(time.monotonic_ns())
    monkeypatch.setattr("gpumon.cli.doctor.machine.SystemClock", lambda: stopped)


def done_by(uid: int, program: str, runtime: Path, *words: str) -> str:
    """Run that user's program and return its output."""
    code = by(uid, program, "gpumon.cli.doctor.machine")
    done = ran_python("-c", code, runtime, *words, environ={"GPUMON_RUNTIME_DIR": str(runtime)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def litter(uid: int, runtime: Path, count: int) -> None:
    """Create files that are named like rings."""
    done_by(uid, JUNK, runtime, str(count), "{}-1.ring", "no ring at all")


def findings_in(runtime: Path) -> dict[str, Finding]:
    environ = {"GPUMON_RUNTIME_DIR": str(runtime), "HOME": str(runtime), "PATH": ""}
    return {finding.name: finding for finding in machine_findings(environ)}


def figures(printed: str) -> list[int]:
    """The numbers in it, in their order."""
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", printed)]


class TestALivingRun:
    @pytest.mark.usefixtures("no_time_passes")
    def test_is_found_among_a_thousand_dead_rings_of_a_user(self, shared: Path) -> None:
        done_by(OTHER_UID, DEAD, shared, "1000")
        for ended, uid in enumerate((0, THIRD_UID, OTHER_UID), start=1000):
            with process(by(uid, TRAINING), shared) as training:
                found = findings_in(shared)["rings"]

            assert figures(found.detail) == [training.pid, uid, ended]
            assert (found.status, found.fix) == ("ok", None)

    def test_is_found_among_files_that_are_no_rings(self, shared: Path) -> None:
        with process(by(0, TRAINING), shared) as training:
            done_by(OTHER_UID, COPIES, shared, "100")
            litter(OTHER_UID, shared, 200)
            found = findings_in(shared)

        assert figures(found["rings"].detail) == [training.pid, 0, 100]
        assert found["rings"].status == "missing"
        refused = found["rings refused"]
        assert figures(refused.detail)[:2] == [200, OTHER_UID]
        assert figures(refused.detail)[-2:] == [14, RING_BYTES]
        assert str(shared / "phases") in str(refused.fix)

    @pytest.mark.measured
    @pytest.mark.alone  # 16,384 names take their time
    def test_is_found_among_more_names_than_can_be_read(self, shared: Path) -> None:
        litter(OTHER_UID, shared, 17_000)
        began_s = time.monotonic()
        with process(by(0, TRAINING), shared) as training:
            found = findings_in(shared)["rings"]

        pid, uid, _, other = figures(found.detail)
        assert (pid, uid, other) == (training.pid, 0, OTHER_UID)
        assert found.status == "missing"
        assert "rm " not in str(found.fix)  # one of them may live
        assert str(shared / "phases") in str(found.fix)
        assert time.monotonic() - began_s < 10


class TestWithADaemon:
    def test_there_is_one_count_of_refused_rings_and_it_is_of_now(
        self, tmp_path: Path, shared: Path
    ) -> None:
        refused = 'gpumon_collector_errors_total{collector="phase_rings"}'
        with (
            daemon_in(shared, tmp_path, "simulated:healthy") as daemon,
            process(by(0, TRAINING), shared) as training,
        ):
            daemon.wait_for(lambda state: any(run["alive"] for run in state["runs"]))
            litter(OTHER_UID, shared, 200)
            wait_until(lambda: daemon.metrics()[refused] == 200)
            for number in range(150):
                (shared / "phases" / f"{number}-1.ring").unlink()
            reported = findings_in(shared)

        (count,) = (one.detail for one in reported.values() if "refused" in one.detail)
        assert figures(count)[:2] == [50, OTHER_UID]
        assert figures(reported["rings"].detail)[:2] == [training.pid, 0]


class TestRingsThatEndedLongAgo:
    def test_are_left_as_they_are(self, shared: Path) -> None:
        """The owner of the folder may remove them."""
        uid = OTHER_UID
        done_by(OTHER_UID, DEAD, shared, "300")
        for path in (shared, shared / "phases"):
            os.chown(path, uid, uid)
        for path in (shared / "phases").iterdir():
            os.utime(path, (A_YEAR_AGO_S, A_YEAR_AGO_S))
        before = all_that_is_in(shared)

        printed = done_by(uid, PRINT_RINGS, shared)

        assert figures(printed) == [300]
        assert all_that_is_in(shared) == before


def all_that_is_in(folder: Path) -> dict[str, tuple[int, int, int, int]]:
    found = {path: path.stat() for path in (folder, *folder.rglob("*"))}
    return {str(p): (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for p, s in found.items()}

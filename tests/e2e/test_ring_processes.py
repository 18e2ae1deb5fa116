"""Rings of real processes that fork, spawn, execute, live in a container, or lack a permission."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.phase import TrainingPhase
from tests.builders.ring import only
from tests.needs import needed
from tests.other_users import as_root, become, shared_runtime_folder
from tests.patience import PATIENCE_S, until
from tests.programs import ran, ran_python
from tests.training_processes import TRAINING, process, read, reader_of

WITH_WORKERS = """
import multiprocessing, sys
from tests.e2e import training_workers
from trainer_hooks import phase, step, timed
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with phase("train_step"):
        with context.Pool(2) as pool:
            for _ in timed(pool.imap(getattr(training_workers, sys.argv[2]), range(20))):
                step(samples=1)
    print("there", flush=True)
    sys.stdin.read()
"""


EXECUTES_ITSELF = """
import os, sys
from trainer_hooks import phase, step
step()
if len(sys.argv) == 1:
    code = open("/proc/self/cmdline").read().split("\\0")[2]
    os.execv(sys.executable, [sys.executable, "-c", code, "again"])
step()
print("there", flush=True)
sys.stdin.read()
"""

LOOK_AS_OTHER_USER = (
    become(imports="gpumon.sources.ring_reader.phase_rings, gpumon.sources.system_clock")
    + """
import sys, time
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from gpumon.sources.system_clock import read_boot_id
reader = PhaseRingReader([sys.argv[1]], boot_id=read_boot_id())
for seconds_ahead in sys.argv[2:]:
    reading = reader.read(time.monotonic_ns() + int(seconds_ahead) * 10**9)
print(len(reading.rings), reading.rejected, reading.message)
"""
)

LOOK = """
import sys
from pathlib import Path
from tests.training_processes import read, reader_of
(run,) = read(reader_of(Path(sys.argv[1]))).rings
print(run.alive, run.host_pid)
"""


@pytest.fixture
def shared_runtime() -> Iterator[Path]:
    with shared_runtime_folder() as runtime:
        yield runtime


class TestWorkersOfADataLoader:
    @pytest.mark.parametrize(("method", "load"), [("fork", "load_and_tag"), ("spawn", "load")])
    def test_that_are_forked_or_say_nothing_have_no_ring(
        self, tmp_path: Path, method: str, load: str
    ) -> None:
        with process(WITH_WORKERS, tmp_path, method, load) as training:
            run = only(read(reader_of(tmp_path)))

        assert (run.alive, run.host_pid) == (True, training.pid)
        assert (run.steps, run.samples) == (20, 20)
        assert TrainingPhase.CHECKPOINT not in run.phase_ns
        assert run.phase_ns[TrainingPhase.INPUT_WAIT] > 0

    def test_that_are_spawned_and_tag_have_rings_of_their_own(self, tmp_path: Path) -> None:
        with process(WITH_WORKERS, tmp_path, "spawn", "load_and_tag") as training:
            rings = read(reader_of(tmp_path)).rings

        own = [run for run in rings if run.host_pid == training.pid]
        others = [run for run in rings if run.host_pid != training.pid]
        assert [(run.alive, run.steps, run.samples) for run in own] == [(True, 20, 20)]
        assert 1 <= len(others) <= 2  # one quick worker may do it all
        assert sum(run.steps for run in others) == 20
        assert not any(run.alive for run in others)


class TestATrainingThatExecutesItself:
    def test_ends_one_run_and_begins_another_under_one_pid(self, tmp_path: Path) -> None:
        with process(EXECUTES_ITSELF, tmp_path) as training:
            rings = sorted(read(reader_of(tmp_path)).rings, key=lambda run: run.facts.started_ns)

        assert [(run.alive, run.steps) for run in rings] == [(False, 1), (True, 2)]
        assert {run.host_pid for run in rings} == {training.pid}


class TestATrainingInAPidNamespace:
    @pytest.fixture
    def unshare(self) -> tuple[str, ...]:
        """Words that start a program in a namespace of its own."""
        words = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        needed(words[0], "util-linux")
        tried = ran(*words, "true")
        if tried.returncode != 0:
            pytest.skip(f"not permitted here: {' '.join(words)} ({tried.stderr.strip()})")
        return words

    def test_is_known_by_the_pid_that_the_host_gives_it(
        self, tmp_path: Path, unshare: tuple[str, ...]
    ) -> None:
        with process(TRAINING, tmp_path, before=unshare) as outer:
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            run = only(read(reader_of(tmp_path)))

        assert run.alive
        assert run.facts.pid == 1
        assert [run.host_pid] == [int(pid) for pid in children]

    def test_ends_when_the_container_does(self, tmp_path: Path, unshare: tuple[str, ...]) -> None:
        reader = reader_of(tmp_path)
        with process(TRAINING, tmp_path, before=unshare) as outer:
            alive = only(read(reader))
            outer.kill()
            outer.wait(PATIENCE_S)
            assert until(lambda: not only(read(reader)).alive)
            ended = only(read(reader))

        assert (ended.host_pid, ended.steps) == (alive.host_pid, 3)


@as_root
class TestWithoutPermission:
    def test_to_write_the_folder_a_run_goes_on_with_one_warning(self, shared_runtime: Path) -> None:
        (shared_runtime / "phases").chmod(0o555)
        environ = {"GPUMON_RUNTIME_DIR": str(shared_runtime)}
        done = ran_python("-c", become() + TRAINING, environ=environ)

        assert (done.returncode, done.stdout) == (0, "there\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert f" {shared_runtime}/phases " in done.stderr
        assert list((shared_runtime / "phases").iterdir()) == []

    def test_to_read_a_ring_a_daemon_says_so_and_reads_the_others(
        self, shared_runtime: Path
    ) -> None:
        with (
            process(TRAINING, shared_runtime) as training,
            process(become() + TRAINING, shared_runtime),
        ):
            for ring in (shared_runtime / "phases").glob(f"{training.pid}-*"):
                ring.chmod(0o600)
            seen = ran_python("-c", LOOK_AS_OTHER_USER, shared_runtime, "0")

        counts, _, message = seen.stdout.strip().partition(" 1 ")
        assert counts == "1"
        assert message.endswith(f".ring: {os.strerror(errno.EACCES)}")

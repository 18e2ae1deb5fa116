"""The runtime folder is removed, replaced or made unusable while a daemon serves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.faults.conftest import PERIOD_S, SERVE, remove_folder_of
from tests.needs import needed
from tests.other_users import OTHER_UID, as_root, become, shared_runtime_folder
from tests.training_processes import TRAINING, process
from tests.waiting import PATIENCE_S, until, wait_until

SUCCESS = 'gpumon_collector_success{collector="state_file"}'


def another(daemon: RunningDaemon, where: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Start a second daemon in the folder of the first; it must end by itself."""
    folder = {"GPUMON_RUNTIME_DIR": str(where or daemon.runtime_dir)}
    return subprocess.run(
        [sys.executable, "-m", "gpumon", "serve", *SERVE, "--listen", "127.0.0.1:0"],
        env={**daemon.environ, **folder},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def is_kept(daemon: RunningDaemon, within_s: float = PATIENCE_S) -> bool:
    """Whether the daemon renews its state within that time."""

    def written_ns() -> int:
        try:
            return int(daemon.state()["monotonic_ns"])
        except (OSError, ValueError):
            return 0

    before_ns = written_ns()
    return until(lambda: 0 < before_ns < written_ns(), within_s)


def keeps_its_state(daemon: RunningDaemon) -> bool:
    """Whether its own metrics report that."""
    return daemon.metrics()[SUCCESS] == 1.0


def serving_in(folder: Path, tmp_path: Path) -> RunningDaemon:
    """A daemon with that runtime folder and its log in another."""
    tmp_path.mkdir(exist_ok=True)
    return RunningDaemon(tmp_path, *SERVE, runtime_dir=folder)


class TestAFolderThatIsRemovedWhileServing:
    def test_is_created_again_with_the_state_and_the_rings_folder(
        self, daemon: RunningDaemon
    ) -> None:
        remove_folder_of(daemon)

        assert is_kept(daemon)
        modes = [
            path.stat().st_mode & 0o7777
            for path in (daemon.runtime_dir, daemon.runtime_dir / "phases")
        ]
        assert modes == [0o700, 0o700]
        assert daemon.log().count("was removed") == 1
        wait_until(lambda: keeps_its_state(daemon), 5.0)

    def test_belongs_to_a_second_daemon_that_locked_it_meanwhile(
        self, tmp_path: Path, daemon: RunningDaemon
    ) -> None:
        """The first daemon was stopped meanwhile, for example with its machine."""
        daemon.process.send_signal(signal.SIGSTOP)
        shutil.rmtree(daemon.runtime_dir)
        with serving_in(daemon.runtime_dir, tmp_path / "second") as second:
            daemon.process.send_signal(signal.SIGCONT)
            writers = set()

            def has_ended() -> bool:
                writers.add(second.state()["pid"])
                return daemon.process.poll() is not None

            wait_until(has_ended, 10.0)

            assert daemon.process.returncode == 1
            assert f"daemon (pid {second.process.pid})" in daemon.log()
            assert "Traceback" not in daemon.log()
            assert writers == {second.process.pid}
            assert is_kept(second)

    @pytest.mark.parametrize("removed", ["all that is in it", "itself"])
    def test_stays_locked_whatever_is_removed(self, daemon: RunningDaemon, removed: str) -> None:
        if removed == "itself":
            remove_folder_of(daemon)
        for path in daemon.runtime_dir.iterdir():
            if removed in (path.name, "all that is in it"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

        second = another(daemon)

        assert second.returncode == 1
        assert f"pid {daemon.process.pid}" in second.stderr
        assert is_kept(daemon)
        assert (daemon.runtime_dir / "phases").is_dir()


def put_aside(folder: Path) -> Path:
    return folder.rename(folder.with_name("aside"))


class TestAFolderThatBecomesUnusable:
    @pytest.mark.parametrize(
        ("spoil", "fix", "why"),
        [
            (lambda it: put_aside(it) and it.touch(), Path.unlink, "is not a folder"),
            (lambda it: it.symlink_to(put_aside(it)), Path.unlink, "is a link"),
            (lambda it: it.chmod(0o777), lambda it: it.chmod(0o700), "can be written by others"),
        ],
    )
    def test_is_reported_once_and_metrics_continue(
        self,
        daemon: RunningDaemon,
        spoil: Callable[[Path], None],
        fix: Callable[[Path], None],
        why: str,
    ) -> None:
        assert keeps_its_state(daemon)
        spoil(daemon.runtime_dir)
        wait_until(lambda: not keeps_its_state(daemon), 5.0)
        before = daemon.metrics()["gpumon_samples_total"]
        time.sleep(5 * PERIOD_S)

        metrics = daemon.metrics()
        assert metrics["gpumon_samples_total"] > before
        assert metrics[SUCCESS] == 0.0
        assert daemon.log().count(why) == 1
        assert not is_kept(daemon, 2 * PERIOD_S)

        fix(daemon.runtime_dir)
        wait_until(lambda: keeps_its_state(daemon), 5.0)
        assert is_kept(daemon)

    def test_is_created_again_with_its_parent(self, tmp_path: Path) -> None:
        """As ``/run/user/1000`` does at a logout and the next login."""
        session = tmp_path / "session"
        session.mkdir()
        with serving_in(session / "gpumon", tmp_path) as running:
            session.rename(tmp_path / "gone")
            session.mkdir()

            wait_until(running.state_file.exists, 5.0)
            assert is_kept(running)
            assert another(running).returncode == 1


OF_A_SESSION = """
import sys
from gpumon.cli.main import main
os.environ["XDG_RUNTIME_DIR"] = sys.argv[1]
del os.environ["GPUMON_RUNTIME_DIR"]
print("there", flush=True)
words = "serve --source simulated:healthy --period 0.2 --listen 127.0.0.1:0"
sys.exit(main(words.split()))
"""
USER = 54_321
OF_SERVE = "gpumon.cli.serve, gpumon.outlets.store.store, gpumon.sources.simulated"
AS_THE_USER = become(USER, imports=OF_SERVE) + OF_A_SESSION


@as_root
class TestADaemonOfALoginSession:
    @pytest.fixture
    def session(self) -> Iterator[Path]:
        with shared_runtime_folder() as shared:
            session = shared / "session"
            log_in(session)
            yield session

    @pytest.fixture
    def next_one(self) -> Iterator[Path]:
        folder = Path(f"/tmp/gpumon-{USER}")
        yield folder
        shutil.rmtree(folder, ignore_errors=True)

    @pytest.fixture
    def after_logout(self, session: Path, next_one: Path) -> Iterator[subprocess.Popen[str]]:
        with process(AS_THE_USER, session, str(session)) as running:
            wait_until((session / "gpumon" / "state.json").exists)
            shutil.rmtree(session)
            wait_until((next_one / "state.json").exists, 5.0)
            yield running

    def test_uses_the_next_folder_after_a_logout(
        self, next_one: Path, after_logout: subprocess.Popen[str]
    ) -> None:
        assert after_logout.poll() is None
        assert next_one.stat().st_mode & 0o7777 == 0o700

    def test_refuses_a_folder_of_another_user(
        self, session: Path, next_one: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """In ``/tmp`` another user may be first."""
        next_one.mkdir(mode=0o755)
        os.chown(next_one, OTHER_UID, -1)
        with process(AS_THE_USER, session, "/nowhere") as refused:
            assert refused.wait(PATIENCE_S) == 1

        printed = capfd.readouterr().err
        assert f"{next_one} " in printed
        assert f"user {OTHER_UID}" in printed
        assert "$GPUMON_RUNTIME_DIR" in printed
        assert list(next_one.iterdir()) == []


def log_in(session: Path) -> None:
    session.mkdir(mode=0o700)
    os.chown(session, USER, USER)


LOCKS_EVERYTHING = """
import fcntl, sys
folder, names = sys.argv[1], {"", *sys.argv[2:]}
names.update(os.listdir(folder))
held = []
for name in names:
    try:
        held.append(os.open(os.path.join(folder, name), os.O_RDONLY))
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        assert name not in sys.argv[2:], error
print("there", flush=True)
sys.stdin.read()
"""


@as_root
class TestAnotherUser:
    def test_cannot_lock_the_folder_before_the_daemon(self, tmp_path: Path) -> None:
        """Every user who can read a folder can lock it, so that cannot be the daemon's lock."""
        other_user = become(OTHER_UID, imports="fcntl") + LOCKS_EVERYTHING
        with (
            shared_runtime_folder() as shared,
            process(other_user, shared, str(shared), "", "phases"),
            serving_in(shared, tmp_path) as running,
            process(other_user, shared, str(shared), "state.json"),  # who comes later can no more
        ):
            assert is_kept(running)
            assert another(running).returncode == 1


class TestSystemdTmpfiles:
    def test_removes_nothing_that_a_daemon_or_training_run_uses(self, tmp_path: Path) -> None:
        """By default it removes files from ``/tmp`` that were unused for ten days."""
        clean = needed("systemd-tmpfiles", "systemd")
        area, rules = tmp_path / "area", tmp_path / "rules.conf"
        area.mkdir()
        (area / "old").write_text("")
        rules.write_text(f"d {area} - - - 1s\n")
        served, alone = area / "gpumon-1", area / "gpumon-2"
        with (
            serving_in(served, tmp_path / "daemon") as running,
            process(TRAINING, served),
            process(TRAINING, alone),
        ):
            running.process.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            before = sorted(area.rglob("*"))

            subprocess.run([clean, "--clean", str(rules)], check=True, timeout=PATIENCE_S)

            left = sorted(area.rglob("*"))
            running.process.send_signal(signal.SIGCONT)
            assert [path for path in before if path not in left] == [area / "old"]
            assert another(running, served).returncode == 1

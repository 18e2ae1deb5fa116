"""A store that cannot be used, or is lost on the way, never stops the daemon."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import gpumon.outlets.store.store as store_module
from gpumon.outlets.store.store import Store
from tests.builders.store import Machine
from tests.daemon import RunningDaemon
from tests.needs import in_make_truth, missing
from tests.waiting import wait_until

SOURCE = ("--source", "simulated:input-bound", "--period", "0.5")
SUCCESS = 'gpumon_collector_success{collector="store"}'
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system, which needs root")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store, in a folder that is there."""
    folder = tmp_path / "state" / "gpumon"
    folder.mkdir(parents=True, mode=0o700)
    return folder / "store.sqlite3"


def refused(tmp_path: Path) -> str:
    """How a daemon that cannot use its store says so; it serves without one."""
    with RunningDaemon(tmp_path, *SOURCE) as daemon:
        wait_until(lambda: SUCCESS in daemon.metrics())
        assert daemon.metrics()[SUCCESS] == 0.0
        wait_until(lambda: daemon.report()["gpus"][0]["observed_seconds"] > 1.0)
        now_s = time.time()
        status, body = daemon.get(f"/api/v1/history?from={now_s - 60}&to={now_s}")
        assert status == 200
        assert json.loads(body)["gpus"]
        log = daemon.log()
    sentences = [line for line in log.splitlines() if "nothing is kept over restarts" in line]
    assert len(sentences) >= 1, log
    return sentences[0]


def works(daemon: RunningDaemon) -> None:
    """Wait until the store succeeds, and there is something to keep."""
    wait_until(lambda: daemon.metrics().get(SUCCESS) == 1.0)
    wait_until(lambda: daemon.report()["gpus"][0]["observed_seconds"] > 1.0)


def kept_of(path: Path) -> float:
    """Seconds in the store, over all GPUs."""
    with closing(sqlite3.connect(path)) as database:
        (busy_ms,) = database.execute("SELECT coalesce(sum(busy), 0) FROM minutes").fetchone()
    return float(busy_ms) / 1000


class TestAFileThatCannotBeUsed:
    def test_a_link_is_not_followed(self, tmp_path: Path, path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_bytes(b"")
        path.symlink_to(elsewhere)

        assert "is a link" in refused(tmp_path)
        assert elsewhere.read_bytes() == b""

    def test_a_link_in_place_of_the_folder_is_not_followed(self, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "gpumon").symlink_to(elsewhere)

        assert "is a link" in refused(tmp_path)
        assert [*elsewhere.iterdir()] == []

    def test_a_link_in_place_of_its_log_is_not_followed(self, tmp_path: Path, path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        Path(f"{path}-wal").symlink_to(elsewhere)

        assert "is a link" in refused(tmp_path)
        assert not elsewhere.exists()

    def test_a_folder(self, tmp_path: Path, path: Path) -> None:
        path.mkdir()

        assert "is not a regular file" in refused(tmp_path)

    def test_a_pipe(self, tmp_path: Path, path: Path) -> None:
        os.mkfifo(path)

        assert "is not a regular file" in refused(tmp_path)

    def test_a_file_in_place_of_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "gpumon").write_bytes(b"")

        assert "is not a folder" in refused(tmp_path)

    def test_a_file_of_ten_gigabytes_is_left_as_it_is(self, tmp_path: Path, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(10 << 30)

        assert "move it away" in refused(tmp_path)
        assert path.stat().st_size == 10 << 30

    @as_root
    def test_a_file_of_another_user(self, tmp_path: Path, path: Path) -> None:
        path.write_bytes(b"")
        os.chown(path, 65534, 65534)

        assert "belongs to user 65534" in refused(tmp_path)

    @as_root
    def test_a_read_only_file_system(self, tmp_path: Path) -> None:
        with file_system(tmp_path / "state", "size=1m,ro"):
            assert "Read-only file system" in refused(tmp_path)


class TestAFileOfAnotherVersion:
    @pytest.mark.parametrize(("version", "kind"), [(99, "newer"), (-1, "older")])
    def test_is_set_aside_and_a_new_one_begun(
        self, tmp_path: Path, path: Path, version: int, kind: str
    ) -> None:
        with RunningDaemon(tmp_path, *SOURCE):
            pass
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"PRAGMA user_version = {version}")
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            works(daemon)
            log = daemon.log()

        (aside,) = path.parent.glob(f"{path.name}-{kind}-*Z")
        assert f"is of a{'n' if kind == 'older' else ''} {kind} gpumon" in log
        assert aside.name in log
        assert kept_of(path) > 0

    def test_of_another_program_is_set_aside(self, tmp_path: Path, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE mine (x)")
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            wait_until(lambda: daemon.metrics().get(SUCCESS) == 1.0)

        assert len([*path.parent.glob(f"{path.name}-other-*Z")]) == 1


class TestADamagedFile:
    @pytest.mark.parametrize("content", [b"\xff" * 9000, b"SQLite format 3\0" + b"\xff" * 9000])
    def test_is_set_aside_at_the_start(self, tmp_path: Path, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            works(daemon)
            log = daemon.log()

        (aside,) = path.parent.glob(f"{path.name}-corrupt-*Z")
        assert aside.read_bytes() == content
        assert "is damaged" in log
        assert kept_of(path) > 0

    def test_is_set_aside_when_it_is_found(self, tmp_path: Path, path: Path) -> None:
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            wait_until(lambda: daemon.report()["gpus"][0]["observed_seconds"] > 2.0)
        content = bytearray(path.read_bytes())
        content[1024:] = b"\xff" * (len(content) - 1024)  # all but the first page
        path.write_bytes(content)
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            wait_until(lambda: "is damaged" in daemon.log())
            works(daemon)

        assert len([*path.parent.glob(f"{path.name}-corrupt-*Z")]) == 1
        assert kept_of(path) > 0


class TestARemovedFile:
    def test_is_made_again(
        self, tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "RETRY_EVERY_S", 0.0)
        monkeypatch.setattr(store_module, "FLUSH_EVERY_S", 0.02)
        machine = Machine(Store(path))
        machine.store.start()
        machine.work(60)
        machine.history(0, 1)
        path.unlink()
        wait_until(path.exists)
        machine.work(60)
        machine.store.close()

        assert kept_of(path) == 60.0


class TestTwoDaemons:
    def test_the_second_serves_without_a_store_until_the_first_ends(self, tmp_path: Path) -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        first.mkdir()
        second.mkdir()
        shared = {"XDG_STATE_HOME": str(tmp_path / "state")}
        with RunningDaemon(first, *SOURCE, environ=shared) as one:
            with RunningDaemon(second, *SOURCE, environ=shared) as two:
                wait_until(lambda: two.metrics().get(SUCCESS) == 0.0)
                log = two.log()
            wait_until(lambda: one.metrics().get(SUCCESS) == 1.0)

        assert "is used by another gpumon daemon; nothing is kept over restarts" in log
        assert kept_of(tmp_path / "state" / "gpumon" / "store.sqlite3") > 0


@contextmanager
def file_system(folder: Path, options: str) -> Iterator[Path]:
    """A file system in memory; skips where none can be mounted."""
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        missing(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(filler: Path) -> None:
    """Leave no room where this file is."""
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


class TestAFullDisk:
    @in_make_truth
    @as_root
    def test_is_reported_and_the_store_goes_on_when_there_is_room(self, tmp_path: Path) -> None:
        with file_system(tmp_path / "state", "size=2m,mode=0700") as disk:
            filler = disk / "filler"
            with RunningDaemon(tmp_path, *SOURCE) as daemon:
                wait_until(lambda: daemon.metrics().get(SUCCESS) == 1.0)
                fill(filler)
                wait_until(lambda: daemon.metrics()[SUCCESS] == 0.0, 60.0)
                observed_s = daemon.report()["gpus"][0]["observed_seconds"]
                filler.unlink()
                wait_until(lambda: daemon.metrics()[SUCCESS] == 1.0, 60.0)
                wait_until(lambda: "store: works again" in daemon.log(), 60.0)
                wait_until(
                    lambda: daemon.report()["gpus"][0]["observed_seconds"] > observed_s + 1.0
                )
                log = daemon.log()
                busy_s = sum(gpu["busy_seconds"] for gpu in daemon.report()["gpus"])
            kept_s = kept_of(disk / "gpumon" / "store.sqlite3")

        assert "full; sampling continues" in log
        assert kept_s >= busy_s - 0.1  # nothing was lost meanwhile

    def test_from_the_start_is_reported(self, tmp_path: Path) -> None:
        limit = ("prlimit", "--fsize=4096")
        if not _has("prlimit"):
            missing("prlimit is not installed")
        with RunningDaemon(tmp_path, *SOURCE, prefix=limit, ready=False) as daemon:
            wait_until(lambda: "nothing is kept over restarts" in daemon.log())


def _has(program: str) -> bool:
    return subprocess.run(["which", program], capture_output=True, check=False).returncode == 0

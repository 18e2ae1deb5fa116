"""`dstat --gpu`: where it looks for a daemon, and what it trusts."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.core.ring_format.runtime_paths import MAX_STATE_BYTES, watch_name
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from tests.builders.dstat import DASHES, Table, gpu, publish, this_boot
from tests.builders.ring import phases_folder
from tests.other_users import OTHER_UID, as_root
from tests.waiting import no_hang


class TestWhereItLooks:
    @pytest.fixture
    def session(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.delenv("GPUMON_RUNTIME_DIR")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        if Path("/run/gpumon/state.json").exists():
            pytest.skip("a real daemon of this machine comes first: /run/gpumon/state.json")
        return tmp_path / "gpumon"

    def test_is_the_system_then_the_session_then_tmp(self, session: Path) -> None:
        publish(session, gpu(0), gpu(1))
        plugin = Table().plugin

        assert plugin._folders() == ["/run/gpumon", str(session), f"/tmp/gpumon-{os.getuid()}"]
        assert plugin.name == ["gpu0", "gpu1"]

    def test_is_no_folder_in_tmp_that_another_user_made(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delenv("GPUMON_RUNTIME_DIR")
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="gpumon-") as made:
            publish(Path(made), gpu(0), gpu(1))
            if os.getuid() == 0:
                os.chown(made, 4711, -1)
            monkeypatch.setattr(os, "getuid", lambda: 4712)
            plugin = Table().plugin
            plugin._folders = lambda: [made]

            state, problem = plugin._fresh_state()

        assert state is None
        assert made in problem

    def test_is_nowhere_else_where_the_user_names_a_folder(
        self, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(session, gpu(0), gpu(1))
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "empty"))

        assert Table().cells() == DASHES


def test_a_removed_folder_leaves_dashes_until_the_daemon_is_back(runtime: Path) -> None:
    publish(runtime, gpu(0, busy_s=40))
    table = Table()
    before = table.cells()
    shutil.rmtree(runtime)
    meanwhile = table.cells()
    publish(runtime, gpu(0, observed_s=110, busy_s=50))

    assert (before[0], meanwhile, table.cells()[0]) == ("40", DASHES, "100")


class TestAHostileStateFile:
    """Whatever lies there, the row has dashes, and the table goes on at once."""

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "{",
            "null",
            "[" * 100_000,
            '{"schema": "gpumon.state/2"}',
            '{"schema": "gpumon.state/1"}',
            "9" * 2_000_000,
            "\udcff",
        ],
        ids=["empty", "torn", "null", "deep", "newer", "bare", "digits", "not-utf-8"],
    )
    def test_that_is_no_state(self, runtime: Path, content: str) -> None:
        (runtime / "state.json").write_text(content, encoding="utf-8", errors="surrogateescape")

        assert_dashes_at_once()

    @pytest.mark.parametrize(
        "gpus",
        [
            "null",
            "7",
            "[null]",
            "[{}]",
            '[{"index": "0"}]',
            '[{"index": 1e999}]',
            '[{"index": 0, "present": true, "uuid": [], "observed_ns": 1, "busy_ns": 1,'
            ' "starved_ns": 0, "suspected_ns": 0}]',
            '[{"index": 0, "present": true, "observed_ns": NaN}]',
            '[{"index": 0, "present": true, "observed_ns": -1, "busy_ns": true}]',
        ],
    )
    def test_that_lies_about_its_gpus(self, runtime: Path, gpus: str) -> None:
        (runtime / "state.json").write_text(
            '{"schema": "gpumon.state/1", "pid": 1, "period_ns": 1000000000, "boot_id": '
            f'"{this_boot()}", "monotonic_ns": {time.monotonic_ns()}, "gpus": {gpus}}}',
            encoding="ascii",
        )

        assert_dashes_at_once()

    @pytest.mark.parametrize("kind", ["fifo", "folder", "link", "huge"])
    def test_that_is_no_file_of_a_daemon(self, runtime: Path, tmp_path: Path, kind: str) -> None:
        path = runtime / "state.json"
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            publish(tmp_path / "elsewhere", gpu(busy_s=100))
            path.symlink_to(tmp_path / "elsewhere" / "state.json")
        else:
            path.touch()
            os.truncate(path, 1 << 34)

        assert_dashes_at_once()

    @pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
    def test_that_is_larger_than_any_daemon_writes(
        self, runtime: Path, more: int, is_read: bool
    ) -> None:
        publish(runtime, gpu(busy_s=100))
        path = runtime / "state.json"
        # Blanks before it say nothing. The other readers take as much.
        path.write_bytes(path.read_bytes().rjust(MAX_STATE_BYTES + more))

        assert (Table().cells()[0] == "100") is is_read

    def test_that_comes_from_the_future(self, runtime: Path) -> None:
        publish(runtime, gpu(busy_s=100), age_s=-3600)

        assert_dashes_at_once()


def assert_dashes_at_once() -> None:
    with no_hang(cpu_s=1.0):
        assert Table().cells() == DASHES


def a_hard_link(path: Path) -> None:
    os.link(path.parents[1] / "state.json", path)


def files_below(folder: Path) -> list[tuple[Path, int, int, float]]:
    """What lies there, and when it was changed."""
    found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(path, status.st_mode, status.st_ino, status.st_mtime) for path, status in found]


IN_ITS_PLACE: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(path.parents[1] / "state.json"),
    "a link to nowhere": lambda path: path.symlink_to(path.parents[1] / "made"),
    "a hard link": a_hard_link,
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
}


class TestTheHeartbeat:
    """A file beside the rings, by which the daemon knows that a user looks."""

    @pytest.fixture
    def phases(self, runtime: Path) -> Path:
        publish(runtime, gpu(busy_s=100))
        return phases_folder(runtime)

    def test_is_touched_by_each_row_of_a_user(self, phases: Path) -> None:
        table = Table()
        assert not [*phases.iterdir()]
        table.row()
        (heartbeat,) = phases.iterdir()
        os.utime(heartbeat, (0, 0))
        table.plugin._touched_at -= 1
        table.row()
        found = heartbeat.stat()

        assert heartbeat.name == watch_name(os.geteuid())
        assert (found.st_uid, stat.S_IMODE(found.st_mode), found.st_size) == (
            os.geteuid(), 0o644, 0,
        )  # fmt: skip
        assert time.time() - found.st_mtime < 2

    def test_is_touched_once_a_second_by_all_columns_together(self, phases: Path) -> None:
        tables = [Table(), Table("dstat_gpu_stall")]
        for table in tables:
            table.scope["totlist"] = [one.plugin for one in tables]
        for table in tables:
            table.row()
        (heartbeat,) = phases.iterdir()
        os.utime(heartbeat, (0, 0))
        for table in tables * 3:
            table.row()

        assert heartbeat.stat().st_mtime == 0

    def test_is_seen_by_the_daemon(self, phases: Path) -> None:
        reader = PhaseRingReader([phases.parent], boot_id=this_boot())
        before = reader.read(time.monotonic_ns()).is_watched
        Table().row()

        assert (before, reader.read(time.monotonic_ns()).is_watched) == (False, True)
        reader.close()

    def test_is_not_made_where_no_daemon_runs(self, runtime: Path) -> None:
        publish(runtime, gpu(busy_s=100), age_s=60)
        phases = phases_folder(runtime)
        Table().row()

        assert not [*phases.iterdir()]

    @pytest.mark.parametrize("make", IN_ITS_PLACE.values(), ids=IN_ITS_PLACE)
    def test_is_left_as_it_is_if_it_is_something_else(
        self, phases: Path, make: Callable[[Path], object]
    ) -> None:
        heartbeat = phases / watch_name(os.geteuid())
        make(heartbeat)
        for path in phases.parent.rglob("*"):
            os.utime(path, (0, 0), follow_symlinks=False)
        before = files_below(phases.parent)
        with no_hang(5):
            cells = Table().cells()

        assert cells == ["100", "50", "0"]
        assert files_below(phases.parent) == before

    @as_root
    def test_is_left_as_it_is_if_it_is_another_users(self, phases: Path) -> None:
        heartbeat = phases / watch_name(os.geteuid())
        heartbeat.touch()
        os.utime(heartbeat, (0, 0))
        os.chown(heartbeat, OTHER_UID, -1)
        Table().row()

        assert heartbeat.stat().st_mtime == 0

    def test_is_not_made_behind_a_link(self, runtime: Path, tmp_path: Path) -> None:
        publish(runtime, gpu(busy_s=100))
        (tmp_path / "elsewhere").mkdir()
        (runtime / "phases").symlink_to(tmp_path / "elsewhere")

        assert Table().cells() == ["100", "50", "0"]
        assert not [*(tmp_path / "elsewhere").iterdir()]

    @pytest.mark.parametrize("error", [OSError, ValueError, OverflowError])
    def test_costs_no_row_if_it_cannot_be_made(
        self, phases: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
    ) -> None:
        def fails(_: int) -> None:
            raise error

        monkeypatch.setattr(os, "utime", fails)
        before = len([*Path("/proc/self/fd").iterdir()])

        assert Table().cells() == ["100", "50", "0"]
        assert len([*Path("/proc/self/fd").iterdir()]) == before

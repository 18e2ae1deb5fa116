"""`dstat --gpu`: where it looks for a daemon, and what it trusts."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from gpumon.core.ring_format.runtime_paths import MAX_STATE_BYTES
from tests.builders.dstat import DASHES, Table, gpu, publish, this_boot
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

"""Tests of the state file: always complete, and its failures never stop the daemon."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from pathlib import Path

import pytest

from gpumon.core.sample import GpuSample, ProcessSample
from gpumon.outlets.state_file import StateFile
from tests.builders.state import device, healthy_gpu, monitor_state


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / "state.json", address="127.0.0.1:19835")


def two_daemons(path: Path) -> tuple[StateFile, StateFile]:
    """Two with one pid, as in two containers."""
    return StateFile(path, address="127.0.0.1:1"), StateFile(path, address="127.0.0.1:2")


class TestWriting:
    def test_has_pid_and_address(self, file: StateFile) -> None:
        file.write(monitor_state())

        document = json.loads(file.path.read_text())
        assert document["monotonic_ns"] == 1_000_000_000_000
        assert document["pid"] == os.getpid()
        assert document["address"] == "127.0.0.1:19835"

    def test_makes_the_file_readable_by_everybody(self, file: StateFile) -> None:
        before = os.umask(0o077)
        try:
            file.write(monitor_state())
        finally:
            os.umask(before)

        assert stat.S_IMODE(file.path.stat().st_mode) == 0o644

    def test_omits_processes(self, file: StateFile) -> None:
        someone = ProcessSample(4000, 1 << 30, 0.5, "secret-project", "ada")
        latest = GpuSample(device=device(), processes=(someone,))

        file.write(monitor_state(gpus=(healthy_gpu(latest=latest),)))

        text = file.path.read_text()
        assert [word for word in ("ada", "secret-project", "processes") if word in text] == []
        assert [path.name for path in file.path.parent.iterdir()] == ["state.json"]

    def test_never_shows_a_partial_file(self, file: StateFile) -> None:
        file.write(monitor_state())
        torn: list[str] = []
        done = threading.Event()

        def read_on() -> None:
            while not done.is_set():
                text = file.path.read_text()
                try:
                    json.loads(text)
                except ValueError:
                    torn.append(text)

        reader = threading.Thread(target=read_on)
        reader.start()
        for tick in range(300):
            file.write(monitor_state(samples_total=tick, source="s" * (tick % 100)))
        done.set()
        reader.join(5)

        assert torn == []


class TestAFailure:
    def test_is_counted_and_logged_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = StateFile(tmp_path / "later" / "state.json")
        caplog.set_level(logging.WARNING)
        file.write(monitor_state())
        file.write(monitor_state())
        failing = file.collector_state()
        (tmp_path / "later").mkdir()

        file.write(monitor_state())

        (message,) = caplog.messages
        assert f"{file.path}: No such" in message
        assert (failing.name, failing.success, failing.errors_total) == ("state_file", False, 2)
        assert (file.collector_state().success, file.collector_state().errors_total) == (True, 2)

    def test_does_not_follow_a_link(self, file: StateFile) -> None:
        precious = file.path.parent / "precious"
        precious.write_text("mine")
        (file.path.parent / f".gpumon-{os.getpid()}.tmp").symlink_to(precious)

        file.write(monitor_state())

        assert precious.read_text() == "mine"


class TestClosing:
    def test_removes_the_file(self, file: StateFile) -> None:
        file.write(monitor_state())

        file.close()
        file.close()

        assert list(file.path.parent.iterdir()) == []

    @pytest.mark.parametrize("others", range(1, 6))
    def test_keeps_the_file_of_another_daemon(self, tmp_path: Path, others: int) -> None:
        # The other's file may have got the inode of the first one's.
        first, second = two_daemons(tmp_path / "state.json")
        first.write(monitor_state())
        for _ in range(others):
            second.write(monitor_state())

        first.close()

        assert (tmp_path / "state.json").exists()


class TestAFolder:
    def test_may_change(self, file: StateFile) -> None:
        other = file.path.parent / "b"
        other.mkdir()
        file.write(monitor_state())

        file.stay_in(other, "replaced")
        failing = file.collector_state()
        file.write(monitor_state())

        assert file.path == other / "state.json"
        assert file.path.exists()
        assert (failing.success, failing.errors_total, failing.message) == (False, 1, "replaced")
        assert file.collector_state().success

    def test_may_be_missing_for_a_while(self, file: StateFile, tmp_path: Path) -> None:
        for _ in range(2):
            file.stay_in(None, "no folder")
            file.write(monitor_state())

        assert list(tmp_path.iterdir()) == []
        assert (file.collector_state().success, file.errors_total) == (False, 2)
        assert file.collector_state().message == "no folder"

"""The outlets on a machine without disk space or file descriptors."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli.dstat_hosts import put_copy
from gpumon.errors import GpumonError
from gpumon.outlets.state_file import StateFile
from tests.builders.state import monitor_state
from tests.serving import ask, serving


@contextlib.contextmanager
def limited(what: int, to: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (to, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """No file may grow beyond 100 bytes. Not for a complete test: pytest's output may be a file."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with limited(resource.RLIMIT_FSIZE, 100):
            yield
    finally:
        signal.signal(signal.SIGXFSZ, before)


class TestAFullDisk:
    def test_keeps_the_last_complete_state_until_there_is_space_again(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "state.json").write_text("{}")
        file = StateFile(tmp_path / "state.json")

        with caplog.at_level(logging.WARNING), no_room():
            for _ in range(3):
                file.write(monitor_state())

        assert (tmp_path / "state.json").read_text() == "{}"
        assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
        assert file.errors_total == 3
        assert os.strerror(errno.EFBIG) in caplog.text
        assert len(caplog.records) == 1
        file.write(monitor_state())  # there is room again
        assert json.loads(file.path.read_text())["schema"] == "gpumon.state/1"

    def test_leaves_no_incomplete_dstat_plugin(self, tmp_path: Path) -> None:
        with pytest.raises(GpumonError, match=os.strerror(errno.EFBIG)), no_room():
            put_copy(tmp_path / "dstat_gpu.py")

        assert [*tmp_path.iterdir()] == []


class TestNoFileDescriptorsLeft:
    @pytest.mark.measured
    def test_causes_no_busy_loop_and_one_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        with serving(monitor_state()) as server:
            highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
            with socket.socket() as client, contextlib.ExitStack() as blockers:
                blockers.enter_context(limited(resource.RLIMIT_NOFILE, highest + 8))
                with contextlib.suppress(OSError):
                    while True:
                        blockers.callback(os.close, os.dup(0))
                client.connect((server.host, server.port))
                used_s = time.process_time()
                time.sleep(0.5)
                used_s = time.process_time() - used_s

            state = server.collector_state()

            assert used_s < 0.25
            assert ask(server, "/metrics").status == 200

        assert (state.success, state.errors_total > 1) == (False, True)
        assert [message for message in caplog.messages if "Too many open files" in message] == [
            "a connection cannot be accepted: OSError: [Errno 24] Too many open files"
        ]

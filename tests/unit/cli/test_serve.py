"""Tests of the daemon."""

from __future__ import annotations

import socket
import threading
import urllib.request
from pathlib import Path

import pytest

from gpumon.cli.serve import Daemon
from gpumon.errors import GpumonError
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS, ReadTimes
from tests.waiting import PATIENCE_S, wait_until


def daemon_at(listen: str) -> Daemon:
    return Daemon(
        "simulated:healthy", listen=[listen], token=None, times=ReadTimes(0.1), wait=False,
        nvml=DEFAULT_OPTIONS,
    )  # fmt: skip


def test_a_daemon_without_a_folder_releases_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("no folder")
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "taken"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(GpumonError):
        daemon_at(f"127.0.0.1:{port}")

    socket.create_server(("127.0.0.1", port)).close()


def test_a_fault_of_the_web_server_is_counted_in_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "run"))
    daemon = daemon_at("127.0.0.1:0")
    selector = daemon._http._server._selector
    select, faults = selector.select, [RuntimeError("a fault of the loop")]

    def failing(timeout: float | None) -> object:
        if faults:
            raise faults.pop()
        return select(timeout)

    monkeypatch.setattr(selector, "select", failing)

    def scraped() -> list[str]:
        url = f"http://{daemon._http.address}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            body: str = answer.read().decode()
        return [line for line in body.splitlines() if 'collector="web_server"' in line]

    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        wait_until(lambda: 'gpumon_collector_errors_total{collector="web_server"} 1.0' in scraped())
        series = scraped()
    finally:
        daemon.stop()
        thread.join(PATIENCE_S)

    assert 'gpumon_collector_success{collector="web_server"} 0.0' in series
    assert [one for one in caplog.messages if "web" in one] == [
        "an iteration of the web server's loop failed: RuntimeError: a fault of the loop"
    ]

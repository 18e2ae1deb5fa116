"""Specification of the daemon's beginning: what it cannot have, it lets go of."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gpumon.cli.serve import Daemon
from gpumon.errors import GpumonError
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS


def test_a_daemon_without_a_folder_gives_its_port_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("no folder")
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "taken"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(GpumonError):
        Daemon(
            "simulated",
            listen=[f"127.0.0.1:{port}"],
            token=None,
            period_s=1.0,
            wait=False,
            nvml=DEFAULT_OPTIONS,
        )

    socket.create_server(("127.0.0.1", port)).close()

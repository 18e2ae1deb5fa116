"""Specification of where ``gpumon serve`` listens, who gets what there, and how it is ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.programs import ROOT, gpumon
from tests.serving import own_address
from tests.waiting import PATIENCE_S

HEALTHY = ("--source", "simulated:healthy", "--period", "0.5")


def status_of(url: str, token: str | None = None) -> int:
    request = urllib.request.Request(url)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


class TestOnEveryAddress:
    def test_the_machine_itself_goes_on_and_others_get_metrics_alone(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *HEALTHY, "--listen", "0.0.0.0:0") as daemon:
            daemon.wait_for(lambda state: state["gpus"])
            port = daemon.address.rpartition(":")[2]
            there = f"http://{own_address()}:{port}"
            printed = gpumon("report", environ=daemon.environ)
            statuses = [status_of(f"{there}{path}") for path in ("/metrics", "/", "/api/v1/state")]
            greeting = daemon.log()

        assert printed.returncode == 0, printed.stderr
        assert statuses == [200, 403, 403]
        assert f"page     http://127.0.0.1:{port}/" in greeting
        assert f"metrics  http://0.0.0.0:{port}/metrics" in greeting


class TestOnSeveralAddresses:
    def test_answers_at_each_and_shows_them(self, tmp_path: Path) -> None:
        own = own_address()
        environ = {"GPUMON_LISTEN": f"{own}:0, 127.0.0.1:0 [::1]:0"}
        with RunningDaemon(tmp_path, *HEALTHY, environ=environ) as daemon:
            reported = re.findall(r"^  (metrics|page) +(\S+)", daemon.log(), re.MULTILINE)
            metrics = [url for what, url in reported if what == "metrics"]
            pages = [url for what, url in reported if what == "page"]
            statuses = [status_of(url) for url in (*metrics, *pages)]
            address = daemon.address

        assert [url.rpartition(":")[0] for url in metrics] == [
            f"http://{own}", "http://127.0.0.1", "http://[::1]",
        ]  # fmt: skip
        assert statuses == [200, 200, 200, 200, 200]
        assert pages == [url.removesuffix("metrics") for url in metrics[1:]]
        assert metrics[1] == f"http://{address}/metrics"

    def test_only_beyond_loopback_says_to_a_report_what_is_missing(self, tmp_path: Path) -> None:
        listen = f"{own_address()}:0"
        with RunningDaemon(tmp_path, *HEALTHY, "--listen", listen) as daemon:
            printed = gpumon("report", environ=daemon.environ)

        assert printed.returncode == 4
        assert "--listen 127.0.0.1:19835 as well" in printed.stderr


class TestWithGreedyClients:
    def test_scrapes_and_health_are_answered_within_the_limits_of_the_unit(
        self, tmp_path: Path
    ) -> None:
        unit = (ROOT / "deploy" / "gpumon.service").read_text(encoding="utf-8")
        keys = ("TasksMax", "LimitNOFILE", "MemoryHigh")
        tasks, files, mib = (int(re.findall(rf"^{key}=(\d+)M?$", unit, re.M)[0]) for key in keys)
        stream = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
        unfinished = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
        with RunningDaemon(tmp_path, *HEALTHY) as daemon, contextlib.ExitStack() as clients:
            host, _, port = daemon.address.rpartition(":")
            for sent in [stream] * 24 + [unfinished] * 500:
                address = (host, int(port))
                client = clients.enter_context(socket.create_connection(address, PATIENCE_S))
                with contextlib.suppress(ConnectionError):  # it had to make room
                    client.sendall(sent)
            process = Path(f"/proc/{daemon.process.pid}")
            threads, descriptors = daemon.thread_count(), len([*(process / "fd").iterdir()])
            paths = ("/metrics", "/-/healthy") * 20
            statuses = {status_of(f"http://{daemon.address}{path}") for path in paths}
            pages = int((process / "statm").read_text().split()[1])

        assert statuses == {200}
        assert threads < tasks
        assert descriptors < files / 2  # the rings of 256 runs need the other half
        assert pages * os.sysconf("SC_PAGE_SIZE") < mib << 20


class TestTheEnd:
    @pytest.mark.measured
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_by_a_signal_is_clean_and_soon(self, tmp_path: Path, number: signal.Signals) -> None:
        with RunningDaemon(tmp_path, *HEALTHY) as daemon:
            began_s = time.monotonic()
            daemon.process.send_signal(number)
            code = daemon.process.wait(10)
            assert time.monotonic() - began_s < 3.0

            assert (code, daemon.state_file.exists()) == (0, False)
            assert "Traceback" not in daemon.log()

    def test_is_not_that_of_the_terminal_under_nohup(self, tmp_path: Path) -> None:
        with contextlib.ExitStack() as running:
            before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; it is inherited
            try:
                daemon = running.enter_context(RunningDaemon(tmp_path, *HEALTHY))
            finally:
                signal.signal(signal.SIGHUP, before)
            daemon.process.send_signal(signal.SIGHUP)
            stamp = daemon.state()["monotonic_ns"]
            daemon.wait_for(lambda state: state["monotonic_ns"] > stamp)

            assert daemon.process.poll() is None

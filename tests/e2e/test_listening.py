"""Specification of where ``gpumon serve`` listens, who gets what there, and how it is ended."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.patience import PATIENCE_S, wait_until
from tests.processes import ending
from tests.programs import gpumon
from tests.serving import own_address

HEALTHY = ("--source", "simulated:healthy", "--period", "0.5")
TOKEN = "correct-horse-battery-staple"
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
STREAM = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"


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


@contextlib.contextmanager
def dialled(address: str, sent: bytes, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that have sent these bytes."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as opened:
        clients = [
            opened.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            for _ in range(count)
        ]
        for client in clients:
            with contextlib.suppress(ConnectionError):
                client.sendall(sent)
        yield clients


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

    def test_others_get_the_page_for_the_token(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        words = ("--listen", "0.0.0.0:0", "--web-token-file", str(token))
        with RunningDaemon(tmp_path, *HEALTHY, *words) as daemon:
            there = f"http://{own_address()}:{daemon.address.rpartition(':')[2]}"
            statuses = [status_of(f"{there}/", given) for given in (None, "wrong", TOKEN)]
            here = daemon.get("/")[0]
            greeting = daemon.log()

        assert statuses == [401, 401, 200]
        assert here == 200
        assert re.search(r"^ *page .*\btoken\b", greeting, re.MULTILINE)


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

    def test_of_which_one_is_taken_is_one_sentence_and_leaves_nothing(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            free_port, taken_port = free.getsockname()[1], taken.getsockname()[1]
            free.close()
            words = ("--listen", f"127.0.0.1:{free_port}", "--listen", f"127.0.0.1:{taken_port}")
            with RunningDaemon(tmp_path, *HEALTHY, *words, ready=False) as daemon:
                code = daemon.process.wait(10)
                output = daemon.log()

        assert code == 1
        assert output.count("\n") == 1
        assert f"port {taken_port} on 127.0.0.1" in output
        assert not daemon.state_file.exists()


class TestBesideGreedyClients:
    def test_scrapes_and_health_are_answered_within_the_budget_of_the_unit(
        self, tmp_path: Path
    ) -> None:
        """TasksMax=64, LimitNOFILE=1024, MemoryHigh=96M: deploy/gpumon.service."""
        with RunningDaemon(tmp_path, *HEALTHY) as daemon:
            address = daemon.address
            with dialled(address, STREAM, 24), dialled(address, HALF, 200):
                statuses = {
                    status_of(f"http://{address}{path}")
                    for _ in range(100)
                    for path in ("/metrics", "/-/healthy")
                }
                with dialled(address, HALF, 300):
                    statuses.add(status_of(f"http://{address}/metrics"))
                    threads = daemon.thread_count()
                    process = Path(f"/proc/{daemon.process.pid}")
                    descriptors = len(list((process / "fd").iterdir()))
                    resident = process.joinpath("statm").read_text().split()[1]

        assert statuses == {200}
        assert threads < 40
        assert descriptors < 512
        assert int(resident) * os.sysconf("SC_PAGE_SIZE") < 64 << 20


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

    def test_of_its_terminal_is_its_own_and_as_clean(self, tmp_path: Path) -> None:
        controller, terminal = pty.openpty()
        runtime = tmp_path / "run"
        process = subprocess.Popen(
            [sys.executable, "-c",
             "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
             "from gpumon.cli.main import main; raise SystemExit(main())",
             "serve", *HEALTHY, "--listen", "127.0.0.1:0"],
            env={**os.environ, "GPUMON_RUNTIME_DIR": str(runtime)},
            stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        )  # fmt: skip
        with ending(process):
            os.close(terminal)
            wait_until((runtime / "state.json").exists)
            os.close(controller)
            code = process.wait(10)

        assert code == 0
        assert not (runtime / "state.json").exists()

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


class TestAMisspeltVariable:
    def test_is_reported_in_the_log(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *HEALTHY, environ={"GPUMON_PERIODE": "5"}) as daemon:
            output = daemon.log()

        (reported,) = [line for line in output.splitlines() if "GPUMON_PERIODE" in line]
        assert "did you mean GPUMON_PERIOD?" in reported

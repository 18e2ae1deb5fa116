"""Where the web server listens, and what each peer gets there."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from gpumon.cli.main import build_parser
from gpumon.errors import GpumonError, UsageError
from gpumon.outlets.http.clients import WebToken, is_loopback
from gpumon.outlets.http.server import DEFAULT_LISTEN, HttpServer, parse_listen
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders.state import StoppedClock, monitor_state
from tests.serving import ask, dial, new_views, no_report, own_address, serving
from tests.waiting import PATIENCE_S, until

TOKEN = "correct-horse-battery-staple"


class TestOnEveryAddress:
    @pytest.mark.parametrize(("listen", "here"), [("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "[::1]")])
    def test_this_machine_gets_everything_at_the_address_that_is_reported(
        self, listen: str, here: str
    ) -> None:
        with serving(monitor_state(), listen=listen, report=lambda _: {}) as server:
            statuses = [ask(server, path).status for path in ("/metrics", "/", "/api/v1/report")]

            assert server.address == f"{here}:{server.port}"
            assert server.beyond_loopback
            assert is_loopback(server.host)

        assert statuses == [200, 200, 200]

    def test_others_get_metrics_and_health_and_the_rest_only_for_the_token(self) -> None:
        token = WebToken(TOKEN.encode())
        with serving(monitor_state(), listen="0.0.0.0:0", token=token) as server:
            there = own_address()
            answers = [
                ask(server, "/metrics", to=there),
                ask(server, "/-/healthy", host="localhost", to=there),
                ask(server, "/api/v1/state", to=there, Authorization=f"Bearer {TOKEN}"),
                ask(server, "/api/v1/state"),
                ask(server, "/api/v1/state", host="localhost", to=there),
                ask(server, "/api/v1/state", to=there, Authorization="Bearer no"),
            ]

        assert [answer.status for answer in answers] == [200, 200, 200, 200, 401, 401]
        assert answers[-1].headers["WWW-Authenticate"].startswith("Basic ")


class TestOnSeveralAddresses:
    def test_of_both_families_may_share_a_port(self) -> None:
        with serving(listen="127.0.0.1:0") as first:
            port = first.port
        with serving(listen=[f"[::]:{port}", f"0.0.0.0:{port}"]) as server:
            assert ask(server, "/-/healthy").status == 200

    @pytest.mark.parametrize(
        "pair",
        [
            ["127.0.0.1:7777", "127.0.0.1:7777"],
            ["127.0.0.1:7777", "localhost:7777"],
            ["127.0.0.1:7777", "0.0.0.0:7777"],
            ["[::]:7777", "[::1]:7777"],
        ],
    )
    def test_that_overlap_are_refused(self, pair: list[str]) -> None:
        with pytest.raises(UsageError), serving(listen=pair):
            pass

    def test_binds_none_if_one_is_not_available(self) -> None:
        with serving() as first, serving() as second:
            free = second.address
            second.close()
            with pytest.raises(GpumonError, match="in use"):
                serving(listen=[free, first.address]).__enter__()
            with serving(listen=free) as again:
                assert ask(again, "/-/healthy").status == 200


class TestListening:
    def test_is_on_loopback_by_default(self) -> None:
        assert is_loopback(parse_listen(DEFAULT_LISTEN).host)
        assert build_parser(["serve"]).parse_args(["serve"]).listen is None  # the default

    @pytest.mark.measured
    def test_ends_within_two_seconds_even_with_a_stream_open(self) -> None:
        before = threading.active_count()
        with serving(monitor_state()) as server:
            stream = dial(server, b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in stream.recv(100)
            started = time.monotonic()
            server.close()
            took_s = time.monotonic() - started
            stream.close()

        assert took_s < 2.0
        assert until(lambda: threading.active_count() <= before)
        with serving(listen=server.address) as again:
            assert ask(again, "/-/healthy").status == 200

    def test_can_be_closed_before_it_ever_started_and_twice(self) -> None:
        clock = StoppedClock()
        exporter = MetricsExporter(clock=clock, version="0")
        server = HttpServer(
            "127.0.0.1:0", exporter=exporter, clock=clock, report=no_report, view=new_views()
        )

        server.close()
        server.close()

        with pytest.raises(OSError, match="refused"):
            dial(server)

    def test_on_a_port_in_use_says_by_whom(self) -> None:
        code = (
            "import socket; s = socket.create_server(('127.0.0.1', 0)); "
            "print(s.getsockname()[1], flush=True); input()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            port = int(other.stdout.readline())
            with pytest.raises(GpumonError) as caught, serving(listen=f"127.0.0.1:{port}"):
                pass
            other.communicate("\n", timeout=PATIENCE_S)

        assert f" {port} on 127.0.0.1 " in str(caught.value)
        assert f" by pid {other.pid} (" in str(caught.value)
        assert caught.value.exit_code == 1

    def test_on_an_address_that_is_not_here_is_one_sentence(self) -> None:
        with pytest.raises(GpumonError, match=r" 192\.0\.2\.1:0: "), serving(listen="192.0.2.1:0"):
            pass

    @pytest.mark.parametrize(
        "listen",
        ["", "19835", "localhost", "host:", "host:http", "::1:80", "h:99999", "h:-1", "h:²"],
    )
    def test_wants_a_host_and_a_port(self, listen: str) -> None:
        with pytest.raises(UsageError):
            parse_listen(listen)

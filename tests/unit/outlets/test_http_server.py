"""Specification of the web server: the same answers for everybody, at once, for reading only."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from gpumon.core.state import CollectorState, MonitorState
from gpumon.errors import GpumonError, UsageError
from gpumon.outlets.http_server import HttpServer, parse_listen
from gpumon.outlets.prometheus import MetricsExporter
from tests.builders_state import StoppedClock, monitor_state
from tests.patience import until
from tests.serving import ask, read_events, serving


class TestEachAddress:
    def test_metrics_are_those_of_the_exporter(self) -> None:
        with serving(monitor_state()) as server:
            answer = ask(server, "/metrics")

        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "gpumon_gpu_starved_seconds_total" in answer.text

    def test_healthy_before_any_frame_and_ready_after_the_first(self) -> None:
        with serving() as server:
            before = [ask(server, path).status for path in ("/-/healthy", "/-/ready")]
            server.publish(monitor_state(samples_total=0))
            no_source = ask(server, "/-/ready").status
            server.publish(monitor_state(samples_total=1))
            after = ask(server, "/-/ready").status

        assert (before, no_source, after) == ([200, 503], 503, 200)

    def test_ready_says_what_is_missing_and_to_strangers_only_that_something_is(self) -> None:
        broken = CollectorState("nvml", False, 0.0, 1, "no driver: load one")
        state = monitor_state(samples_total=0, collectors=(broken,))
        with serving(state) as server:
            here = ask(server, "/-/ready").text
        with serving(state, listen="0.0.0.0:0") as server:
            elsewhere = ask(server, "/-/ready").text

        assert here.strip() == "not ready: no driver: load one"
        assert elsewhere.strip() == "not ready: no GPU has been read yet"

    def test_state_is_the_document_of_the_state_file(self) -> None:
        with serving(monitor_state()) as server:
            document = json.loads(ask(server, "/api/v1/state").body)

        assert document["schema"] == "gpumon.state/1"
        assert document["pid"] == os.getpid()
        assert document["address"] == server.address
        assert [gpu["verdict"] for gpu in document["gpus"]] == ["starved", "healthy"]

    def test_report_is_what_the_reader_returns(self) -> None:
        with serving(monitor_state(), report=lambda _: {"schema": "gpumon.report/1"}) as server:
            answer = ask(server, "/api/v1/report")

        assert json.loads(answer.body) == {"schema": "gpumon.report/1"}

    @pytest.mark.parametrize("path", ["/api/v1/state", "/api/v1/report"])
    def test_what_is_not_there_yet_is_said_so(self, path: str) -> None:
        with serving(report=lambda _: None) as server:
            answer = ask(server, path)

        assert (answer.status, answer.text) == (
            503, "nothing to tell yet: no GPU has been read\n",
        )  # fmt: skip

    def test_a_report_that_fails_costs_no_other_answer_and_shows_no_traceback(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(_: object) -> None:
            raise ZeroDivisionError("secret detail")

        with serving(monitor_state(), report=broken) as server:
            failed, metrics = ask(server, "/api/v1/report"), ask(server, "/metrics")

        assert (failed.status, metrics.status) == (500, 200)
        assert "secret" not in failed.text
        assert "secret detail" in caplog.text

    def test_history_has_a_point_for_each_tick(self) -> None:
        with serving(monitor_state(), monitor_state()) as server:
            history = json.loads(ask(server, "/api/v1/history").body)

        assert [len(points) for points in history["gpus"].values()] == [2, 2]

    @pytest.mark.parametrize(
        ("path", "content_type"),
        [
            ("/", "text/html; charset=utf-8"),
            ("/page.css", "text/css; charset=utf-8"),
            ("/page.js", "text/javascript; charset=utf-8"),
            ("/figures.js", "text/javascript; charset=utf-8"),
            ("/gpus.js", "text/javascript; charset=utf-8"),
            ("/lanes.js", "text/javascript; charset=utf-8"),
            ("/order.js", "text/javascript; charset=utf-8"),
            ("/tables.js", "text/javascript; charset=utf-8"),
            ("/troubles.js", "text/javascript; charset=utf-8"),
            ("/words.js", "text/javascript; charset=utf-8"),
            ("/favicon.ico", "image/svg+xml"),
        ],
    )
    def test_the_page_comes_with_all_its_files(self, path: str, content_type: str) -> None:
        with serving() as server:
            answer = ask(server, path)

        assert (answer.status, answer.headers["Content-Type"]) == (200, content_type)

    def test_a_query_changes_nothing(self) -> None:
        with serving() as server:
            assert ask(server, "/-/healthy?probe=1").status == 200


class TestTheStream:
    def test_sends_the_newest_state_at_once_and_each_tick_after(self) -> None:
        with serving(monitor_state(samples_total=1)) as server:
            timer = threading.Timer(0.2, server.publish, [monitor_state(samples_total=2)])
            timer.start()
            first, second = (json.loads(data) for data in read_events(server, 2))
            timer.join()

        assert first["state"]["schema"] == "gpumon.state/1"
        assert [first["history"]["sequence"], second["history"]["sequence"]] == [1, 2]

    def test_says_of_each_state_what_is_to_be_said_of_that_very_state(self) -> None:
        def said(state: MonitorState) -> dict[str, object]:
            return {"notes": [], "advice": [f"on tick {state.samples_total}"]}

        with serving(monitor_state(samples_total=1), said=said) as server:
            timer = threading.Timer(0.2, server.publish, [monitor_state(samples_total=2)])
            timer.start()
            events = [json.loads(data) for data in read_events(server, 2)]
            timer.join()

        assert [event["advice"] for event in events] == [["on tick 1"], ["on tick 2"]]

    def test_says_how_old_the_newest_tick_is(self) -> None:
        clock = StoppedClock()
        exporter = MetricsExporter(clock=clock, version="0")
        server = HttpServer("127.0.0.1:0", exporter=exporter, clock=clock)
        server.start()
        try:
            server.publish(monitor_state())
            clock.now_ns += 7_500_000_000

            assert read_events(server, 1, kind="age") == ["7.5"]
        finally:
            server.close()

    def test_has_no_end_and_no_length(self) -> None:
        with serving(monitor_state()) as server:
            answer = ask(server, "/api/v1/stream", "HEAD")

        assert answer.headers["Content-Type"] == "text/event-stream"
        assert "Content-Length" not in answer.headers


class TestEveryAnswer:
    @pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/state", "/nothing", "/-/ready"])
    def test_forbids_what_the_page_does_not_need(self, path: str) -> None:
        with serving() as server:
            headers = ask(server, path).headers

        assert headers["Content-Security-Policy"] == (
            "default-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert not [name for name in headers if name.lower().startswith("access-control")]

    @pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/nothing"])
    def test_to_head_is_that_to_get_without_its_body(self, path: str) -> None:
        with serving(monitor_state()) as server:
            get, head = ask(server, path), ask(server, path, "HEAD")

        changing = ("Date",)
        assert head.body == b""
        assert head.status == get.status
        assert {k: v for k, v in head.headers.items() if k not in changing} == {
            k: v for k, v in get.headers.items() if k not in changing
        }

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
    def test_to_any_other_method_is_a_refusal(self, method: str) -> None:
        with serving() as server:
            answer = ask(server, "/metrics", method)

        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")

    def test_to_a_foreign_host_name_is_a_refusal(self) -> None:
        with serving(monitor_state()) as server:
            assert ask(server, "/api/v1/state", host="evil.example").status == 403

    def test_beyond_loopback_is_metrics_and_health_alone(self) -> None:
        with serving(monitor_state(), listen="0.0.0.0:0") as server:
            statuses = [ask(server, path).status for path in ("/metrics", "/-/healthy", "/")]
            beyond = server.beyond_loopback

        assert (statuses, beyond) == ([200, 200, 403], True)


class TestListening:
    def test_takes_any_free_port_for_port_0_and_says_which(self) -> None:
        with serving() as server:
            assert server.address == f"127.0.0.1:{server.port}"
            assert server.port > 0

    def test_frees_the_port_within_two_seconds_of_closing_even_with_a_stream_open(self) -> None:
        with serving(monitor_state()) as server:
            stream = socket.create_connection((server.host, server.port), timeout=5)
            stream.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in stream.recv(100)
            started = time.monotonic()
            server.close()
            took_s = time.monotonic() - started
            stream.close()

        assert took_s < 2.0
        with serving(listen=server.address) as again:
            assert ask(again, "/-/healthy").status == 200

    def test_ends_its_threads_when_it_closes(self) -> None:
        before = threading.active_count()
        with serving(monitor_state()) as server:
            stream = socket.create_connection((server.host, server.port), timeout=5)
            stream.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in stream.recv(100)
        stream.close()

        assert until(lambda: threading.active_count() <= before)

    def test_can_be_closed_before_it_ever_started_and_twice(self) -> None:
        clock = StoppedClock()
        exporter = MetricsExporter(clock=clock, version="0")
        server = HttpServer("127.0.0.1:0", exporter=exporter, clock=clock)

        server.close()
        server.close()

        with pytest.raises(OSError, match="refused"):
            socket.create_connection((server.host, server.port), timeout=1)

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
            other.communicate("\n", timeout=5)

        assert str(caught.value).startswith(
            f"port {port} on 127.0.0.1 is in use by pid {other.pid} ("
        )
        assert str(caught.value).endswith("try --listen 127.0.0.1:0")
        assert caught.value.exit_code == 1

    def test_on_an_address_that_is_not_here_is_one_sentence(self) -> None:
        why = r"cannot listen on 192\.0\.2\.1:0: "

        with pytest.raises(GpumonError, match=why), serving(listen="192.0.2.1:0"):
            pass

    @pytest.mark.parametrize(
        "listen",
        ["", "19835", "localhost", "host:", "host:http", "::1:80", "h:99999", "h:-1", "h:²"],
    )
    def test_wants_a_host_and_a_port(self, listen: str) -> None:
        with pytest.raises(UsageError, match="--listen"):
            parse_listen(listen)

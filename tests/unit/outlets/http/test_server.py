"""Specification of the web server: the same answers for everybody, at once, for reading only."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from gpumon.core.state import CollectorState, MonitorState
from gpumon.outlets.http.bounded_server import ServerLimits
from gpumon.outlets.http.handler import FaultLog
from gpumon.outlets.http.server import HttpServer
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders_state import StoppedClock, monitor_state
from tests.serving import ask, dial, no_report, nothing_said, own_address, read_events, serving


def test_its_limits_are_those_that_people_are_told() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "configuration.md"
    told, limits = page.read_text(encoding="utf-8"), ServerLimits()

    assert f"{limits.max_connections} connections, of which {limits.max_per_caller} a peer" in told
    assert f"{limits.read_timeout_s:g} s for the head\nof a request" in told
    assert f"{limits.write_timeout_s:g} s to take an answer" in told
    assert f"Live pages are {limits.max_streams} in all" in told


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
            elsewhere = ask(server, "/-/ready", to=own_address()).text

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
        server = HttpServer(
            "127.0.0.1:0",
            exporter=exporter,
            clock=clock,
            report=no_report,
            said=nothing_said,
        )
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

    @pytest.mark.parametrize(
        ("request_head", "status"),
        [
            ("GET {origin}/metrics HTTP/1.1", 200),
            ("GET {origin}/api/v1/state HTTP/1.1", 200),
            ("GET http://evil.example/metrics HTTP/1.1", 403),
            ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost", 403),
            ("GET {origin}/metrics HTTP/1.1\r\nHost: evil.example", 200),
            ("OPTIONS * HTTP/1.1", 405),
            ("CONNECT localhost:80 HTTP/1.1", 405),
            ("GET * HTTP/1.1", 400),
            ("GET localhost:80 HTTP/1.1", 400),
            ("GET //metrics HTTP/1.1", 404),
            ("GET /../metrics HTTP/1.1", 404),
            ("GET /%6detrics HTTP/1.1", 404),
            ("GET /%00 HTTP/1.1", 404),
            ("GET /\0 HTTP/1.1", 400),
            ("GET /met\rrics HTTP/1.1", 400),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400),
            ("GET /metrics HTTP/1.0", 200),
            ("GET /" + "x" * 20_000 + " HTTP/1.1", 431),
        ],
    )
    def test_to_an_unusual_target_is_a_sane_one(self, request_head: str, status: int) -> None:
        with serving(monitor_state()) as server:
            head = request_head.format(origin=f"http://{server.address}")
            with dial(server, f"{head}\r\n\r\n".encode()) as client:
                said = client.makefile("rb").readline().decode()

        assert said.startswith(f"HTTP/1.1 {status} ")

    def test_to_a_request_with_a_body_is_read_before_the_connection_ends(self) -> None:
        with serving() as server:
            post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n"
            with dial(server, post) as client:
                client.sendall(b"x" * 500_000)
                said = client.makefile("rb").read()

        assert said.startswith(b"HTTP/1.1 405 ")


class TestARefusal:
    """What somebody reads who gets no answer."""

    @pytest.mark.parametrize(
        ("request_head", "status", "said"),
        [
            ("GET * HTTP/1.1", 400, "The target must be a path such as /metrics."),
            ("GET /api/v1/state HTTP/1.1\r\nHost: evil.example", 403, "Host must be a local name"),
            ("GET /nothing HTTP/1.1", 404, "Nothing here: try /, /metrics"),
            ("GET /api/v1/report?since=lunch HTTP/1.1", 400, "since=lunch must be a number"),
            ("POST / HTTP/1.1", 405, "Only GET and HEAD."),
            ("GET /" + "x" * 20_000 + " HTTP/1.1", 431, "The head of the request is too long."),
            ("GET /api/v1/report HTTP/1.1", 500, "internal error, see the log of gpumon serve"),
            ("GET /-/ready HTTP/1.1", 503, "not ready: no GPU has been read yet"),
            ("GET /api/v1/state HTTP/1.1", 503, "nothing to tell yet: no GPU has been read"),
        ],
    )
    def test_is_a_sentence_of_its_stated_length(
        self, request_head: str, status: int, said: str
    ) -> None:
        def broken(_: object) -> None:
            raise ZeroDivisionError("a fault")

        sent = f"{request_head}\r\n\r\n".encode()
        with serving(report=broken) as server, dial(server, sent) as client:
            head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")

        assert head.startswith(f"HTTP/1.1 {status} ".encode())
        assert said in body.decode()
        assert f"Content-Length: {len(body)}".encode() in head
        assert body.endswith(b"\n")

    @pytest.mark.parametrize("host", ["localhost", "evil.example"])
    @pytest.mark.parametrize("target", ["/nothing", "/-/ready", "/api/v1/report?x"])
    def test_to_head_has_the_length_of_that_sentence_and_not_the_sentence(
        self, target: str, host: str
    ) -> None:
        with serving(report=lambda _: None) as server:
            said = ask(server, target, host=host)
            sent = f"HEAD {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            with dial(server, sent) as client:
                head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")

        assert head.startswith(f"HTTP/1.1 {said.status} ".encode())
        assert f"Content-Length: {len(said.body)}".encode() in head
        assert body == b""

    def test_for_want_of_room_says_so_and_when_to_come_again(self) -> None:
        with serving(limits=ServerLimits(max_streams=0)) as server:
            refused = ask(server, "/api/v1/stream")

        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        assert refused.text == "too many connections, try again.\n"


class TestAFaultOfOurs:
    def test_is_told_once_a_minute_and_its_place_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(_: object) -> None:
            raise ZeroDivisionError("a fault")

        with serving(monitor_state(), report=broken) as server:
            statuses = {ask(server, "/api/v1/report").status for _ in range(20)}

        assert statuses == {500}
        assert caplog.text.count("Traceback") == 1
        assert len(caplog.records) == 1

    def test_in_a_stream_ends_it_and_gives_its_place_back(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(_: MonitorState) -> dict[str, object]:
            raise ZeroDivisionError("a fault")

        with serving(monitor_state(), said=broken) as server:
            for _ in range(2 * ServerLimits().max_streams):
                with dial(server, b"GET /api/v1/stream HTTP/1.1\r\n\r\n") as client:
                    assert client.makefile("rb").read().startswith(b"HTTP/1.1 200 ")

        assert caplog.text.count("Traceback") == 1
        assert "/api/v1/stream cannot be answered" in caplog.text

    def test_of_a_minute_later_says_how_many_were_not_told(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = 0.0
        monkeypatch.setattr("time.monotonic", lambda: now_s)
        faults = FaultLog()

        def fail() -> None:
            try:
                raise ZeroDivisionError("a fault")
            except ZeroDivisionError as error:
                faults.tell("/api/v1/report", error)

        for _ in range(5):
            fail()
        now_s = 60.0
        fail()

        assert [record.message for record in caplog.records] == [
            "/api/v1/report cannot be answered: ZeroDivisionError: a fault",
            "/api/v1/report cannot be answered (and 4 more faults since this was last said): "
            "ZeroDivisionError: a fault",
        ]
        assert caplog.text.count("Traceback") == 1

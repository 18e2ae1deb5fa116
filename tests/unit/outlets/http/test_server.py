"""The web server: the same answers for all clients, at once, read-only.

Its refusals are in ``tests/golden``.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.diagnosis.input_advice import reason_seen
from gpumon.core.phase import InputWaitReason
from gpumon.core.state import CollectorState, GpuState, MonitorState
from gpumon.core.view.view import MonitorView, RecentCells
from gpumon.outlets.http.bounded_server import ServerLimits
from gpumon.outlets.http.page_files import PAGE_PATHS
from tests.builders.report import wait
from tests.builders.state import (
    S,
    StoppedClock,
    healthy_gpu,
    monitor_state,
    run,
    starved_gpu,
)
from tests.serving import ask, dial, got, new_views, own_address, read_events, serving
from tests.waiting import PATIENCE_S, until

SCRIPTS = [name for name in sorted(PAGE_PATHS) if name.endswith(".js")]
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def broken(_: object) -> Any:
    raise ZeroDivisionError("secret detail")


class TestEachAddress:
    @pytest.mark.parametrize(
        ("path", "content_type"),
        [
            ("/", "text/html; charset=utf-8"),
            ("/page.css", "text/css; charset=utf-8"),
            *((name, "text/javascript; charset=utf-8") for name in SCRIPTS),
            ("/favicon.ico", "image/svg+xml"),
            ("/favicon-gone.svg", "image/svg+xml"),
            ("/palette.css", "text/css; charset=utf-8"),
            ("/metrics", METRICS_TYPE),
            ("/-/healthy?probe=1", "text/plain; charset=utf-8"),
        ],
    )
    def test_has_a_type_and_needs_no_state_but_of_gpus(self, path: str, content_type: str) -> None:
        answer = got(path)

        assert (answer.status, answer.headers["Content-Type"]) == (200, content_type)

    def test_state_is_the_document_of_the_state_file(self) -> None:
        with serving(monitor_state()) as server:
            document = json.loads(ask(server, "/api/v1/state").body)

        assert document["schema"] == "gpumon.state/1"
        assert document["pid"] == os.getpid()
        assert document["address"] == server.address
        assert [gpu["verdict"] for gpu in document["gpus"]] == ["starved", "healthy"]

    def test_state_has_the_reason_of_a_wait(self) -> None:
        why = wait(InputWaitReason.DISK_BOUND, tasks=1, wanted=0.2, given=0.2, disk_busy=0.9)
        document = json.loads(got("/api/v1/state", monitor_state(runs=(run(reasons=(why,)),))).body)

        (reported,) = document["runs"][0]["reasons"]
        assert (reported["reason"], reported["seen"]) == ("disk_bound", reason_seen(why))

    def test_report_and_history_are_what_was_published(self) -> None:
        with serving(monitor_state(), monitor_state(), report=lambda _: {"schema": "of/1"}) as one:
            report = json.loads(ask(one, "/api/v1/report").body)
            history = json.loads(ask(one, "/api/v1/history").body)

        assert report == {"schema": "of/1"}
        assert [len(points) for points in history["gpus"].values()] == [2, 2]


class TestReady:
    WELL = CollectorState("nvml", True, 0.0, 0, None)
    FAILING = CollectorState("nvml", False, 0.0, 1, "no driver: load one")
    LOST = starved_gpu(present=False, error="the GPU is lost")

    def test_comes_with_the_first_frame_and_health_before_it(self) -> None:
        with serving() as server:
            before = [ask(server, path).status for path in ("/-/healthy", "/-/ready")]
            server.publish(monitor_state(samples_total=0))
            no_source = ask(server, "/-/ready").status
            server.publish(monitor_state(samples_total=1))
            after = ask(server, "/-/ready").status

        assert (before, no_source, after) == ([200, 503], 503, 200)

    @pytest.mark.parametrize(
        ("gpus", "status"),
        [
            ((LOST, healthy_gpu()), 200),
            ((healthy_gpu(),), 200),
            ((LOST, LOST), 503),
            ((healthy_gpu(present=False),), 503),
            ((), 503),
        ],
        ids=[
            "one of two is lost",
            "one field fails",
            "both are lost",
            "the driver is gone",
            "none is known",
        ],
    )
    def test_is_lost_with_the_last_gpu(self, gpus: tuple[GpuState, ...], status: int) -> None:
        answer = got("/-/ready", monitor_state(gpus=gpus, collectors=(self.FAILING,)))

        assert answer.status == status
        message = f"not ready: {self.FAILING.message}\n"
        assert answer.text == ("ready\n" if status == 200 else message)

    def test_is_over_where_a_recording_is(self) -> None:
        over = CollectorState("replay", False, 0.0, 0, "the recording is over: 60 s were played.")

        answer = got("/-/ready", monitor_state(collectors=(self.WELL, over)))

        assert (answer.status, answer.text) == (503, f"not ready: {over.message}\n")

    def test_is_lost_where_ticks_come_no_more(self) -> None:
        clock = StoppedClock()
        with serving(monitor_state(), clock=clock) as server:
            clock.now_ns += 3 * S
            young = ask(server, "/-/ready").status
            clock.now_ns += S
            old = ask(server, "/-/ready")

        assert (young, old.status) == (200, 503)
        assert old.text == "not ready: the newest tick is 4 s old\n"

    def test_has_the_reason_only_for_this_machine(self) -> None:
        state = monitor_state(samples_total=0, collectors=(self.FAILING,))
        with serving(state, listen="0.0.0.0:0") as server:
            here = ask(server, "/-/ready").text
            elsewhere = ask(server, "/-/ready", to=own_address()).text

        assert "driver" in here
        assert elsewhere == "not ready: no GPU can be read now\n"


class TestTheStream:
    def test_sends_the_view_of_the_newest_state_at_once_and_of_each_tick_after(self) -> None:
        def view(state: MonitorState, cells: Mapping[str, RecentCells]) -> MonitorView:
            shown = new_views()(state, cells)
            return shown._replace(notes=(f"on tick {state.samples_total}",))

        with serving(monitor_state(samples_total=1), view=view) as server:
            timer = threading.Timer(0.2, server.publish, [monitor_state(samples_total=2)])
            timer.start()
            events = [json.loads(data) for data in read_events(server, 2)]
            timer.join()

        assert events[0]["view"]["schema"] == "gpumon.view/1"
        assert [event["history"]["sequence"] for event in events] == [1, 2]
        assert [event["view"]["notes"] for event in events] == [["on tick 1"], ["on tick 2"]]

    def test_has_the_age_of_the_newest_tick(self) -> None:
        clock = StoppedClock()
        with serving(monitor_state(), clock=clock) as server:
            clock.now_ns += 7_500_000_000

            assert read_events(server, 1, kind="age") == ["7.5"]

    def test_has_no_end_and_no_length(self) -> None:
        answer = got("/api/v1/stream", monitor_state(), method="HEAD")

        assert answer.headers["Content-Type"] == "text/event-stream"
        assert "Content-Length" not in answer.headers


class TestAScrape:
    OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"

    def test_is_compressed_and_in_the_format_that_was_asked_for(self) -> None:
        with serving(monitor_state()) as server:
            plain = ask(server, "/metrics")
            packed = ask(server, "/metrics", Accept=self.OPENMETRICS, Accept_Encoding="gzip")
            refused = ask(server, "/metrics", Accept_Encoding="gzip;q=0")

        assert "Content-Encoding" not in plain.headers
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.headers["Content-Type"].startswith("application/openmetrics-text")
        assert gzip.decompress(packed.body).endswith(b"# EOF\n")
        assert {one.headers["Vary"] for one in (plain, packed)} == {"Accept, Accept-Encoding"}
        assert (refused.body, "Content-Encoding" in refused.headers) == (plain.body, False)

    def test_keeps_its_connection_for_the_next(self) -> None:
        with serving(monitor_state()) as server:
            client = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
            client.connect()
            own = client.sock
            bodies = []
            for tick in range(3):
                client.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
                answer = client.getresponse()
                bodies.append(gzip.decompress(answer.read()))
                assert (answer.status, client.sock) == (200, own)
                server.publish(monitor_state(samples_total=tick))
            client.close()

        assert len({*bodies}) == 3

    @pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
    def test_with_a_body_is_answered_without_unpacking_it(self, method: str) -> None:
        bomb = gzip.compress(b"GET /api/v1/report HTTP/1.1\r\n\r\n" * 100_000)
        head = (
            f"{method} /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
            f"Content-Length: {len(bomb)}\r\n\r\n"
        )
        reported: list[object] = []
        with (
            serving(monitor_state(), report=reported.append) as server,
            dial(server, head.encode() + bomb) as client,
        ):
            answer = client.makefile("rb").read()

        assert answer.startswith(b"HTTP/1.1 200 " if method == "GET" else b"HTTP/1.1 405 ")
        assert b"\r\nConnection: close\r\n" in answer
        assert answer.count(b"HTTP/1.1 ") == 1
        assert reported == []


class TestEveryAnswer:
    @pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/state", "/nothing", "/-/ready"])
    def test_forbids_what_the_page_does_not_need(self, path: str) -> None:
        headers = got(path).headers

        assert headers["Content-Security-Policy"] == (
            "default-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert not [name for name in headers if name.lower().startswith("access-control")]

    @pytest.mark.parametrize(
        ("path", "host"),
        [("/", "localhost"), ("/", "evil.example"), ("/metrics", "localhost"), ("/-/ready", "a")],
    )
    def test_to_head_is_that_to_get_without_its_body(self, path: str, host: str) -> None:
        with serving(report=lambda _: None) as server:
            get = ask(server, path, host=host)
            asked = f"HEAD {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"
            with dial(server, asked.encode()) as client:
                client.shutdown(socket.SHUT_WR)
                head, _, body = client.makefile("rb").read().decode().partition("\r\n\r\n")

        status, *fields = head.splitlines()
        reported = dict(field.split(": ", 1) for field in fields)
        assert status.startswith(f"HTTP/1.1 {get.status} ")
        assert {**reported, "Date": ""} == {**get.headers, "Date": ""}
        assert body == ""

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
    def test_to_any_other_method_is_a_refusal(self, method: str) -> None:
        answer = got("/metrics", method=method)

        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")

    @pytest.mark.parametrize(
        ("request_head", "status"),
        [
            ("GET {origin}/metrics HTTP/1.1", 200),
            ("GET {origin}/api/v1/state HTTP/1.1", 200),
            ("GET /api/v1/state HTTP/1.1\r\nHost: evil.example", 403),
            ("GET http://evil.example/metrics HTTP/1.1", 403),
            ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost", 403),
            ("GET {origin}/metrics HTTP/1.1\r\nHost: evil.example", 200),
            ("OPTIONS * HTTP/1.1", 405),
            ("CONNECT localhost:80 HTTP/1.1", 405),
            ("GET * HTTP/1.1", 400),
            ("GET /%00 HTTP/1.1", 404),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400),
            ("GET /metrics HTTP/1.0", 200),
            ("GET /" + "x" * 20_000 + " HTTP/1.1", 431),
            ("GET /api/v1/report HTTP/1.1", 500),
        ],
    )
    def test_has_a_valid_status_and_length_whatever_is_requested(
        self, request_head: str, status: int
    ) -> None:
        with serving(monitor_state(), report=broken) as server:
            head = request_head.format(origin=f"http://{server.address}")
            with dial(server, f"{head}\r\nConnection: close\r\n\r\n".encode()) as client:
                answer, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")

        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert f"Content-Length: {len(body)}".encode() in answer
        assert body.endswith(b"\n")

    def test_to_a_request_with_a_body_is_read_before_the_connection_ends(self) -> None:
        with serving() as server:
            post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n"
            with dial(server, post) as client:
                client.sendall(b"x" * 500_000)
                answer = client.makefile("rb").read()

        assert answer.startswith(b"HTTP/1.1 405 ")

    def test_without_room_has_a_time_to_retry(self) -> None:
        refused = got("/api/v1/stream", limits=ServerLimits(max_streams=0))

        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")


class TestAnInternalFault:
    def test_costs_no_other_answer_and_is_logged_once_a_minute(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with serving(monitor_state(), report=broken) as server:
            failed = [ask(server, "/api/v1/report") for _ in range(20)]
            metrics = ask(server, "/metrics")

        assert ({answer.status for answer in failed}, metrics.status) == ({500}, 200)
        assert not [answer for answer in failed if "secret" in answer.text]
        assert "secret detail" in caplog.text
        assert (caplog.text.count("Traceback"), len(caplog.records)) == (1, 1)

    def test_in_a_stream_ends_it_and_gives_its_place_back(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with serving(monitor_state(), view=lambda state, _: broken(state)) as server:
            for _ in range(2 * ServerLimits().max_streams):
                with dial(server, b"GET /api/v1/stream HTTP/1.1\r\n\r\n") as client:
                    assert client.makefile("rb").read().startswith(b"HTTP/1.1 200 ")

        assert caplog.text.count("Traceback") == 1
        assert "/api/v1/stream" in caplog.text


def test_a_client_that_hangs_up_without_a_request_is_closed() -> None:
    def descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    with serving(limits=ServerLimits(read_timeout_s=600)) as server:
        before = descriptors()
        for _ in range(5):
            dial(server).close()

        assert ask(server, "/-/healthy").status == 200
        assert until(lambda: descriptors() <= before)

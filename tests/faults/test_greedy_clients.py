"""Clients that never finish or never read take a bounded part of the server."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from gpumon.outlets.http.bounded_server import ServerLimits
from gpumon.outlets.http.server import HttpServer
from tests.builders.state import device, monitor_state, starved_gpu
from tests.serving import ask, dial, is_open, own_address, serving
from tests.waiting import until

TCP_CLOSE = 7
REPORT = b"GET /api/v1/report HTTP/1.1\r\nHost: localhost\r\n\r\n"
STREAM = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUICK = ServerLimits(read_timeout_s=0.5, write_timeout_s=0.5, keep_alive_s=0.1)


def threads_of(server: HttpServer) -> int:
    """Threads that serve a connection now."""
    return sum(thread.name.startswith("gpumon-http-") for thread in threading.enumerate())


@contextlib.contextmanager
def held(connections: Iterable[socket.socket]) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connection) for connection in connections]


def lazy(server: HttpServer, asking: bytes) -> socket.socket:
    """A client that sends a request and reads nothing, with a small buffer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((server.host, server.port))
    client.sendall(asking)
    return client


def was_reset(connection: socket.socket) -> bool:
    """Whether the server closed the connection and freed its data."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state == TCP_CLOSE


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class TestClientsThatKeepTheirConnection:
    def test_are_disconnected_although_they_send_single_lines(self) -> None:
        with (
            serving(monitor_state(), limits=QUICK) as server,
            held([dial(server, b"GET /metrics HTTP/1.1\r\n")]) as dripping,
        ):

            def is_let_go() -> bool:
                try:
                    dripping[0].sendall(b"X-Drip: 1\r\n")
                except OSError:
                    return True
                return False

            # Fewer lines than make a head too long.
            assert until(is_let_go, 8.0, every_s=0.1)

    def test_cost_no_thread_and_no_scrape(self) -> None:
        with (
            serving(monitor_state()) as server,
            held(dial(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n") for _ in range(600)),
        ):
            assert threads_of(server) == 0
            statuses = {ask(server, "/metrics").status for _ in range(30)}

        assert statuses == {200}

    def test_are_limited_and_the_oldest_are_disconnected_first(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        limits = ServerLimits(max_connections=20)
        with (
            serving(monitor_state(), limits=limits) as server,
            held(dial(server, b"GET / HT") for _ in range(50)) as silent,
        ):
            assert ask(server, "/metrics").status == 200
            for gone in silent[:30]:
                with contextlib.suppress(ConnectionError):
                    assert gone.recv(1) == b""
            silent[-1].sendall(b"TP/1.1\r\nHost: localhost\r\n\r\n")

            assert silent[-1].recv(12) == b"HTTP/1.1 200"
        (warning,) = caplog.records
        assert "is full" in warning.getMessage()

    def test_from_another_address_have_eight_connections_and_can_still_scrape(self) -> None:
        there = own_address()
        with (
            serving(monitor_state(), listen="0.0.0.0:0") as server,
            held(dial(server, b"GET / HT", to=there) for _ in range(40)) as silent,
        ):
            assert {ask(server, "/metrics", to=there).status for _ in range(8)} == {200}
            assert ask(server, "/").status == 200
            open_ones = [one for one in silent if is_open(one)]

        assert len(open_ones) <= 8


class TestFiveHundredScrapers:
    ASKED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"

    def test_get_the_same_bytes_of_one_rendering(self) -> None:
        with (
            serving(monitor_state()) as server,
            held(dial(server, self.ASKED) for _ in range(500)) as scrapers,
        ):
            bodies = [answer_to(scraper) for scraper in scrapers]
            assert ask(server, "/-/healthy").status == 200

        assert len(bodies) == 500
        assert len({*bodies}) == 1
        assert bodies[0].startswith(b"\x1f\x8b")

    def test_that_hang_cost_the_next_scraper_nothing(self) -> None:
        much = monitor_state(
            gpus=tuple(starved_gpu(device=device(0, f"GPU-{number}")) for number in range(256))
        )
        asked = self.ASKED.replace(b"gzip", b"identity")
        with (
            serving(much, limits=QUICK) as server,
            held(lazy(server, asked * (number % 2 + 1)) for number in range(100)),
        ):
            assert {ask(server, "/metrics").status for _ in range(10)} == {200}
            assert until(lambda: threads_of(server) == 0)


def answer_to(client: socket.socket) -> bytes:
    """The body of one answer on a connection that is kept."""
    answer = http.client.HTTPResponse(client)
    answer.begin()
    return answer.read()


class TestRequestsThatTakeLong:
    def test_delay_no_scrape_and_no_health_check(self) -> None:
        done = threading.Event()

        def slow(_: object) -> dict[str, object]:
            done.wait(20)
            return {}

        with serving(monitor_state(), report=slow) as server:
            try:
                with held(dial(server, REPORT) for _ in range(100)) as asking:
                    scraped = {
                        ask(server, path).status
                        for path in ("/metrics", "/-/healthy", "/-/ready")
                        for _ in range(20)
                    }
                    refused = asking[-1].recv(12)
                    most = ServerLimits().max_threads
                    has_no_more = until(lambda: threads_of(server) == most)
                    done.set()
                    answered = asking[0].recv(12)
            finally:
                done.set()

        assert scraped == {200}
        assert has_no_more
        assert (refused, answered) == (b"HTTP/1.1 503", b"HTTP/1.1 200")


class TestAnswersThatAreNotRead:
    MUCH: ClassVar = {"much": "x" * 8_000_000}  # more than the kernel takes

    def test_occupy_no_thread_and_are_dropped(self) -> None:
        limits = ServerLimits(write_timeout_s=0.5, max_unsent_bytes=1 << 30)
        with (
            serving(monitor_state(), report=lambda _: self.MUCH, limits=limits) as server,
            held(lazy(server, REPORT) for _ in range(30)) as unread,
        ):
            assert until(lambda: threads_of(server) == 0)
            assert ask(server, "/api/v1/state").status == 200
            assert until(lambda: all(was_reset(one) for one in unread))

    def test_take_a_bounded_amount_of_memory(self) -> None:
        before = resident_mib()
        with (
            serving(monitor_state(), report=lambda _: self.MUCH) as server,
            held(lazy(server, REPORT) for _ in range(60)),
        ):
            assert ask(server, "/api/v1/state").status == 200  # stands behind all of them
            grown = resident_mib() - before

        assert grown < 200  # 60 of 8 MB are 480


class TestStreamsThatAreNotRead:
    @pytest.mark.measured
    def test_are_dropped_and_never_delay_the_sampler(self) -> None:
        much = monitor_state(gpus=tuple(starved_gpu() for _ in range(64)))
        with serving(much, limits=QUICK) as server, lazy(server, STREAM):
            assert until(lambda: threads_of(server) == 1)
            slowest_s = 0.0
            ticks = 0
            while threads_of(server) and ticks < 400:
                started = time.monotonic()
                server.publish(much)
                slowest_s = max(slowest_s, time.monotonic() - started)
                ticks += 1
                time.sleep(0.02)
            dropped = until(lambda: threads_of(server) == 0)

        assert dropped
        assert slowest_s < 0.5
        # The kernel on its own would take megabytes for a client that reads nothing.
        assert ticks < 60

    def test_are_limited_to_16_and_leave_room_for_scrapes(self) -> None:
        with (
            serving(monitor_state()) as server,
            held(dial(server, STREAM) for _ in range(20)) as streams,
        ):
            starts = [stream.recv(12) for stream in streams]

            assert starts.count(b"HTTP/1.1 200") == 16
            assert starts.count(b"HTTP/1.1 503") == 4
            assert ask(server, "/metrics").status == 200

"""Damaged and hostile requests to `gpumon serve`: it answers or closes, and does not grow."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.daemon import RunningDaemon
from tests.fuzz.fuzzing import Case, Fuzz, Growth, for_seconds_and_minutes
from tests.fuzz.mutations import BYTES, LINES, NUMBERS, SIGNS, mutated
from tests.waiting import until

_MOST_BYTES: Final = 300_000
_PATHS: Final = (
    b"/metrics", b"/-/healthy", b"/-/ready", b"/", b"/api/v1/state", b"/api/v1/history",
    b"/api/v1/report", b"/api/v1/stream", b"/page.js", b"/nothing",
)  # fmt: skip
_AUTHORITIES: Final = (b"http://localhost", b"https://127.0.0.1:1", b"http://", b"ftp://a")
_NO_PATHS: Final = (
    b"*", b"", b"?", b"#", b"localhost:80", b"%", b"/" * 70_000, b"//", b"/\0", b"http://[",
    b"a:b:c",
)  # fmt: skip
_ENDS: Final = (b"\n", b"\r", b"\n\r", b"\r\r\n", b"")
_METHODS: Final = (
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH",
    b"get", b"G\0T", b"", b"GET" * 30_000, b"__class__", b"_serve", b"\xff", b"PRI",
)  # fmt: skip
_VERSIONS: Final = (
    b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1.1", b"HTTP/", b"",
    b"HTTP/-1.1", b"HTTP/1.\xc2\xb2", b"HTTP/99999999999.1", b"http/1.1", b"RTSP/1.0",
    b"HTTP/1.1 x",
)  # fmt: skip
_HOSTS: Final = (
    b"localhost", b"127.0.0.1", b"[::1]", b"evil.example", b"", b"[", b"[::1",
    b"127.0.0.1:99999999",
    b"localhost.", b"127.0.0.1.evil.example", b"a" * 60_000, b"localhost\xe9", b"user@localhost",
    b"127.1", b"0x7f.1", b"localhost, evil.example",
)  # fmt: skip
_HEADERS: Final = (
    b"Accept: application/openmetrics-text; version=1.0.0", b"Accept: text/plain;q=nan",
    b"Accept: application/openmetrics-text; version=\xff", b"Accept: " + b"a," * 20_000,
    b"Connection: keep-alive", b"Connection: close, keep-alive", b"Expect: 100-continue",
    b"Content-Length: 99999999999999999999", b"Content-Length: -1", b"Content-Length: 5",
    b"Content-Length: 0x10", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Upgrade: h2c", b"Range: bytes=0-", b"If-None-Match: *", b"Authorization: Bearer \xff\0",
    b"Authorization: Basic ====", b"Cookie: " + b"c" * 70_000, b" folded: yes", b"\tfolded",
    b"no colon", b": no name", b"X-\0: 1", b"X: \r Y: 1", b"Host : localhost", b"X-A: \xed\xa0\x80",
    b"Last-Event-ID: 9", b"Origin: null", b"Sec-Fetch-Site: cross-site", b"Referer: http://evil/",
)  # fmt: skip
_BODIES: Final = (
    b"", b"", b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"zz\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\0" * 5_000,
)  # fmt: skip
_QUERIES: Final = (
    b"since=", b"since=3600", b"run=", b"run=train", b"run=lie&since=1", b"=", b"&",
    b"since=1&since=2",
    b"since", b"run=%", b"run=%zz", b"run=%00", b"run=%ff%fe", b"run=%F0%9F%9A%80", b"run=_other",
    b"%73ince=5", b"run=" + b"a" * 3_000, b"run=" + b"%41" * 20_000, b"since=1;run=2", b"since=+1",
    b"since=%31", b"since= 5", b"run=../../etc/passwd", b"x=" * 30_000,
)  # fmt: skip


def a_target(random: Random) -> bytes:
    """A path in one of the forms of RFC 9112, or in another one."""
    path = random.choice(_PATHS)
    form = random.randrange(12)
    if form == 0:
        return random.choice(_AUTHORITIES) + path
    if form == 1:
        return random.choice((b"/", b"//", b"/./", b"/../", b"/%2e%2e", b"\\", b"/..;/")) + path
    if form == 2:
        at = random.randrange(len(path))
        return path[:at] + b"%%%02x" % path[at] + path[at + 1 :]
    if form == 3:
        return path + random.choice(SIGNS) * random.choice((1, 1, 2_000))
    if form == 4:
        return random.choice(_NO_PATHS)
    if form < 9:
        return b"/api/v1/report?" + a_query(random)
    return path


def a_query(random: Random) -> bytes:
    if random.random() < 0.4:
        return b"since=" + random.choice(NUMBERS)
    query = random.choice(_QUERIES)
    return mutated(random, query, BYTES) if random.random() < 0.3 else query


def a_request(random: Random) -> bytes:
    """A damaged request."""
    usual = random.random() < 0.6
    method = b"GET" if usual else random.choice(_METHODS)
    version = b"HTTP/1.1" if random.random() < 0.8 else random.choice(_VERSIONS)
    headers = [b"Host: " + (b"localhost" if usual else random.choice(_HOSTS))]
    for _ in range(random.choice((0, 0, 1, 3, 150))):
        headers.insert(random.randint(0, len(headers)), random.choice(_HEADERS))
    if random.random() < 0.1:
        headers.append(b"Host: " + random.choice(_HOSTS))
    end = b"\r\n" if random.random() < 0.9 else random.choice(_ENDS)
    head = [b" ".join((method, a_target(random), version)), *headers, b"", b""]
    request = end.join(head) + random.choice(_BODIES)
    if random.random() < 0.3:
        request = mutated(random, request, (*BYTES, *LINES))
    return request[:_MOST_BYTES]


def pieces_of(random: Random, data: bytes) -> Sequence[bytes]:
    if random.random() < 0.8:
        return (data,)
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((1, 2, 5))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


_MOST_GROWTH_KIB = 8_192
_ANSWERED_S = 30.0
"""Far beyond the timeouts of the server."""
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d) [^\r\n]*\r\n")
_OF_ANOTHER_VERSION = 505
"""The status for HTTP/2.0."""
_WAITING = 4
"""Connections that are held open; a client may have eight."""


class TestThePort:
    @for_seconds_and_minutes()
    def test_answers_or_closes_whatever_it_is_sent(self, tmp_path: Path, seconds: float) -> None:
        fuzz_http(Fuzz(tmp_path, seconds), tmp_path)


def fuzz_http(fuzz: Fuzz, folder: Path) -> None:
    silent: list[socket.socket] = []
    with RunningDaemon(folder, "--source", "simulated:input-bound") as daemon:
        host, _, port = daemon.address.rpartition(":")
        growth = Growth(daemon.process.pid, most_kib=_MOST_GROWTH_KIB)
        assert daemon.get("/metrics")[0] == 200
        at_rest = (growth.threads(), growth.descriptors())

        def one_connection(case: Case) -> None:
            send_one(case, (host, int(port)), silent)
            assert daemon.process.poll() is None
            assert "Traceback" not in daemon.log()

        fuzz.run(one_connection, growth)
        for waiting in silent:
            waiting.close()
        assert until(lambda: (growth.threads(), growth.descriptors()) <= at_rest, _ANSWERED_S), (
            growth.threads(),
            growth.descriptors(),
            at_rest,
        )
        assert daemon.get("/metrics")[0] == 200
        growth.check()


def send_one(case: Case, peer: tuple[str, int], silent: list[socket.socket]) -> None:
    """Open a connection that is answered, closed, or left open and never read."""
    random = case.random
    requests = [a_request(random) for _ in range(random.choice((1, 1, 1, 1, 2, 5)))]
    sent = case.tries(b"".join(requests))
    connection = socket.create_connection(peer, _ANSWERED_S)
    connection.settimeout(_ANSWERED_S)
    with contextlib.suppress(ConnectionError):  # it was answered and closed already
        for piece in pieces_of(random, sent):
            connection.sendall(piece)
            time.sleep(random.choice((0.0, 0.0, 0.02)))
    way = random.random()
    if way < 0.05:
        silent.append(connection)
        while len(silent) > _WAITING:
            silent.pop(0).close()
        return
    with connection:
        if way < 0.1:
            return  # closed with the answer unread
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        check_answer(received(connection))


def received(connection: socket.socket) -> bytes:
    """Receive until it is closed, or the beginning of a stream."""
    answer, give_up_s = b"", time.monotonic() + _ANSWERED_S
    with contextlib.suppress(ConnectionResetError):  # more was sent than was read
        for piece in iter(lambda: connection.recv(65_536), b""):
            answer += piece
            if b"text/event-stream" in answer or answer.startswith(b"retry: "):
                break  # it never ends; HTTP/0.9 has no head
            assert time.monotonic() < give_up_s, answer[:200]
    return answer


def check_answer(answer: bytes) -> None:
    """Nothing, or a well-formed response that is no fault of the server."""
    if not answer.startswith(b"HTTP/"):
        return  # nothing, or to HTTP/0.9 the body alone
    found = _STATUS_LINE.match(answer)
    assert found is not None, answer[:200]
    status = int(found[1])
    assert status < 500 or status == _OF_ANOTHER_VERSION or is_busy(status, answer), answer
    head, blank, body = answer.partition(b"\r\n\r\n")
    assert blank, answer[:200]
    names = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    assert all(re.fullmatch(rb"[A-Za-z-]+", name) and colon for name, colon, _ in names), head
    lengths = [int(value) for name, _, value in names if name.lower() == b"content-length"]
    assert lengths == [len(body)] or not lengths or not body, (head, len(body))


def is_busy(status: int, answer: bytes) -> bool:
    """Whether the server is busy, with the reason."""
    return status == 503 and (b"too many" in answer or b"not ready" in answer)

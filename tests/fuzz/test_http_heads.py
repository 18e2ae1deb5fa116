"""Whatever is sent to the port of `gpumon serve`: an answer or an end, and nothing that grows."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from pathlib import Path

from tests.daemon import RunningDaemon
from tests.fuzz.fuzzing import Case, Fuzz, Growth, for_seconds_and_minutes
from tests.fuzz.requests import a_request, pieces_of
from tests.patience import until

_MOST_GROWTH_KIB = 8_192
_ANSWERED_S = 30.0
"""Far beyond the times of the server, for a machine that does other things, too."""
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d) [^\r\n]*\r\n")
_OF_ANOTHER_VERSION = 505
"""HTTP's own word for HTTP/2.0; no fault of ours."""
_WAITING = 4
"""So many connections at once are held open; one peer may have eight."""


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
            assert "Traceback" not in daemon.log()  # of an answer that no one waited for, too

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
    """One connection: what is sent on it is answered, or it is left open and never read."""
    random = case.random
    requests = [a_request(random) for _ in range(random.choice((1, 1, 1, 1, 2, 5)))]
    sent = case.tries(b"".join(requests))
    connection = socket.create_connection(peer, _ANSWERED_S)
    connection.settimeout(_ANSWERED_S)
    with contextlib.suppress(ConnectionError):  # it has been answered already, and was closed
        for piece in pieces_of(random, sent):
            connection.sendall(piece)
            time.sleep(random.choice((0.0, 0.0, 0.02)))
    way = random.random()
    if way < 0.05:  # left as it is: a head without an end, a stream that no one reads
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
    """All until it is closed, or the beginning of a stream."""
    answer, give_up_s = b"", time.monotonic() + _ANSWERED_S
    with contextlib.suppress(ConnectionResetError):  # more was sent than was read
        for piece in iter(lambda: connection.recv(65_536), b""):
            answer += piece
            if b"text/event-stream" in answer or answer.startswith(b"retry: "):
                break  # it never ends; HTTP/0.9 knows no head
            assert time.monotonic() < give_up_s, answer[:200]
    return answer


def check_answer(answer: bytes) -> None:
    """Nothing at all, or well-formed responses none of which is our fault."""
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
    """Whether it is refused for now, and why is reported."""
    return status == 503 and (b"too many" in answer or b"not ready" in answer)

"""One HTTP request: GET and HEAD, whole answers and the event stream."""

from __future__ import annotations

import logging
import socket
import time
from functools import partial
from http import HTTPStatus
from typing import Final

from gpumon.outlets.http.bounded_server import Job, PoolKind, ServerLimits
from gpumon.outlets.http.callers import Caller
from gpumon.outlets.http.faults import FaultLog
from gpumon.outlets.http.live_state import LiveState
from gpumon.outlets.http.request import Refused, Request, read_head
from gpumon.outlets.http.routes import (
    PUBLIC_PATHS,
    SECURITY_HEADERS,
    STREAM_PATH,
    Response,
    Routes,
    sentence,
)

_LOG = logging.getLogger(__name__)

_STREAM_SEND_BUFFER_BYTES: Final = 65_536
"""The kernel would hold megabytes for a client that stopped reading: many minutes of events."""
_EVENTS: Final = "text/event-stream"


class HttpHandler:
    """Makes answers of requests: bytes, or a stream."""

    def __init__(
        self, routes: Routes, live: LiveState, limits: ServerLimits, faults: FaultLog
    ) -> None:
        self._routes, self._live, self._limits = routes, live, limits
        self._faults = faults

    def receive(self, head: bytes, caller: Caller) -> bytes | Job:
        """What is refused is answered at once; what is served is a job for a thread."""
        try:
            request = read_head(head)
            if isinstance(request, Refused):
                return encoded(sentence(request.status, request.text))
            _LOG.debug("%s %s %s", caller.key, request.method, request.path)
            if request.method not in ("GET", "HEAD"):
                return encoded(sentence(405, "Only GET and HEAD.", ("Allow", "GET, HEAD")))
            response = self._routes.refusal(request, caller)
            if response is not None:
                return encoded(response, with_body=request.method == "GET")
        except Exception as error:  # noqa: BLE001 - never of the loop that all connections share
            self._faults.log("a request cannot be answered", error)
            return broken()
        if request.path == STREAM_PATH:
            if request.method == "HEAD":
                return _head(200, _EVENTS)
            return Job(PoolKind.STREAM, lambda: self._stream)
        pool = PoolKind.KEPT if request.path in PUBLIC_PATHS else PoolKind.REST
        return Job(pool, partial(self._answer, request, caller))

    def _answer(self, request: Request, caller: Caller) -> bytes:
        try:
            response = self._routes.answer(request, caller)
        except Exception as error:  # noqa: BLE001 - a fault in one answer is that client's, and ours to log
            self._faults.log(f"{request.path} cannot be answered", error)
            return broken()
        return encoded(response, with_body=request.method == "GET")

    def _stream(self, connection: socket.socket) -> None:
        """Send the newest tick whenever there is one; whoever does not read is dropped."""
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _STREAM_SEND_BUFFER_BYTES)
            connection.sendall(_head(200, _EVENTS) + b"retry: 2000\n\n" + self._live.age_event())
            tick = 0
            while (newest := self._live.wait_beyond(tick, self._limits.keep_alive_s)) is not None:
                if newest != tick:
                    connection.sendall(self._live.event())
                connection.sendall(self._live.age_event())
                tick = newest
        except OSError:
            pass  # it has gone, or reads too slowly: TimeoutError is one of them
        except Exception as error:  # noqa: BLE001 - ours to log; the page comes again
            self._faults.log(f"{STREAM_PATH} cannot be answered", error)


def broken() -> bytes:
    """A fault of ours, without its details."""
    return encoded(sentence(500, "internal error, see the log of gpumon serve"))


def encoded(response: Response, *, with_body: bool = True) -> bytes:
    """A response as it goes over the wire."""
    length = ("Content-Length", str(len(response.body)))
    head = _head(response.status, response.content_type, length, *response.headers)
    return head + response.body if with_body else head


def _head(status: int, content_type: str, *headers: tuple[str, str]) -> bytes:
    fields = (
        ("Server", "gpumon"),
        ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
        ("Content-Type", content_type),
        *headers,
        *SECURITY_HEADERS,
        ("Connection", "close"),
    )
    lines = [f"{name}: {value}" for name, value in fields]
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return "\r\n".join([first, *lines, "", ""]).encode()

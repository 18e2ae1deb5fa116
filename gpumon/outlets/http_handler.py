"""One HTTP request: GET and HEAD, whole answers and the event stream."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Final

from gpumon.outlets.bounded_server import BoundedServer, ServerLimits
from gpumon.outlets.http_routes import (
    SECURITY_HEADERS,
    STREAM_PATH,
    Response,
    Routes,
    sentence,
)
from gpumon.outlets.live_state import LiveState

_LOG = logging.getLogger(__name__)

_STREAM_SEND_BUFFER_BYTES: Final = 65_536
"""The kernel would hold megabytes for a client that stopped reading: many minutes of events."""


class _Streams:
    """Counts open event streams."""

    def __init__(self, limit: int) -> None:
        self._slots = threading.BoundedSemaphore(limit)

    def run(self, stream: Callable[[], None]) -> bool:
        """Run it if there is room."""
        if not self._slots.acquire(blocking=False):
            return False
        try:
            stream()
        finally:
            self._slots.release()
        return True


def handler_type(
    routes: Routes, live: LiveState, limits: ServerLimits
) -> type[BaseHTTPRequestHandler]:
    """The handler class of one server: ``http.server`` wants a class, not an object."""
    streams = _Streams(limits.max_streams)

    class Handler(_Handler):
        timeout = limits.read_timeout_s

    Handler.routes, Handler.live, Handler.streams = routes, live, streams
    Handler.limits = limits
    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "gpumon"
    sys_version = ""
    server: BoundedServer
    routes: Routes
    live: LiveState
    streams: _Streams
    limits: ServerLimits

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be served, in our words and with our headers."""
        if code == 501:
            self._send(sentence(405, "Only GET and HEAD."), ("Allow", "GET, HEAD"))
        else:
            self._send(sentence(code, message or explain or "bad request"))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        _LOG.debug("%s %s", self.client_address[0], format % args)

    def version_string(self) -> str:
        return self.server_version

    def _serve(self) -> None:
        self.server.request_was_read(self.connection)
        self.connection.settimeout(self.limits.write_timeout_s)
        path, _, query = self.path.partition("?")
        refused = self.routes.refusal(path, self.headers.get_all("Host") or [])
        if refused is not None:
            self._send(refused)
        elif path == STREAM_PATH:
            self._serve_stream()
        else:
            self._send(self._answer(path, query))

    def _answer(self, path: str, query: str) -> Response:
        try:
            return self.routes.answer(path, self.headers.get("Accept"), query)
        except Exception:  # noqa: BLE001 - a fault in one answer is that client's, and ours to log
            _LOG.exception("%s cannot be answered", path)
            return sentence(500, "internal error, see the log of gpumon serve")

    def _serve_stream(self) -> None:
        if self.command == "HEAD":
            self._head(200, "text/event-stream")
        elif not self.streams.run(self._stream):
            self._send(sentence(503, "too many live pages are open"), ("Retry-After", "5"))

    def _stream(self) -> None:
        """Send the newest tick whenever there is one; whoever does not read is dropped."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _STREAM_SEND_BUFFER_BYTES)
        # A client that is too slow raises TimeoutError, which is an OSError.
        with contextlib.suppress(OSError):
            self._head(200, "text/event-stream")
            self.wfile.write(b"retry: 2000\n\n" + self.live.age_event())
            tick = 0
            while (newest := self.live.wait_beyond(tick, self.limits.keep_alive_s)) is not None:
                if newest != tick:
                    self.wfile.write(self.live.event())
                self.wfile.write(self.live.age_event())
                tick = newest

    def _send(self, response: Response, *headers: tuple[str, str]) -> None:
        with contextlib.suppress(OSError):
            length = ("Content-Length", str(len(response.body)))
            self._head(response.status, response.content_type, length, *headers)
            if self.command != "HEAD":
                self.wfile.write(response.body)

    def _head(self, status: int, content_type: str, *headers: tuple[str, str]) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in (
            ("Content-Type", content_type),
            *headers,
            *SECURITY_HEADERS,
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()

"""A threading web server that nobody can fill up: bounded in connections, threads and time.

The standard library's own takes every client it is offered and waits for it
for ever: 200 half-open connections are 200 threads, still there a minute later.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import socketserver
import threading
import time
from collections import deque
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any, Final, TypeAlias

_LOG = logging.getLogger(__name__)

_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 34\r\n"
    b"Retry-After: 5\r\nConnection: close\r\n\r\n"
    b"too many connections, try again.\r\n"
)
_Request: TypeAlias = Any
"""A socket; ``socketserver`` also knows datagrams, which never come here."""

_MAX_LINGERING: Final = 64
_LINGER_S: Final = 1.0
_ACCEPT_BACKOFF_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much the server gives away.

    Attributes:
        max_connections: Open at once, streams included; beyond it: 503.
        max_streams: Of them, event streams.
        read_timeout_s: Time a client has to send its whole request, however
            slowly it drips.
        write_timeout_s: Time a client has to take one answer or one event.
        keep_alive_s: A silent stream says that it is alive this often.
    """

    max_connections: int = 32
    max_streams: int = 16
    read_timeout_s: float = 5.0
    write_timeout_s: float = 5.0
    keep_alive_s: float = 5.0


class BoundedServer(ThreadingHTTPServer):
    """Accepts, counts and times connections; what to answer is the handler's."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[socketserver.BaseRequestHandler],
        limits: ServerLimits,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.limits = limits
        self._lock = threading.Lock()
        self._reading_until: dict[socket.socket, float | None] = {}
        self._lingering: deque[tuple[float, socket.socket]] = deque()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without asking the name service who we are, as ``HTTPServer`` would."""
        socketserver.TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)

    def request_was_read(self, connection: socket.socket) -> None:
        """The request is complete: from here on only writing is timed."""
        with self._lock:
            if connection in self._reading_until:
                self._reading_until[connection] = None

    def disconnect_all(self) -> None:
        """End every connection, so that its thread does."""
        with self._lock:
            connections = [*self._reading_until]
            refused, self._lingering = self._lingering, deque()
        for connection in connections:
            _hang_up(connection)
        for _, connection in refused:
            connection.close()

    def get_request(self) -> tuple[Any, Any]:
        """Accept; without file descriptors left, wait a little instead of spinning."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_ACCEPT_BACKOFF_S)
            raise

    def process_request(self, request: _Request, client_address: object) -> None:
        """Give the connection a thread, or refuse it without one."""
        with self._lock:
            full = len(self._reading_until) >= self.limits.max_connections
            if not full:
                self._reading_until[request] = time.monotonic() + self.limits.read_timeout_s
        if full:
            self._refuse(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._forget(request)
            self._refuse(request)

    def shutdown_request(self, request: _Request) -> None:
        """Close a connection and give its place back."""
        self._forget(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between two accepts: hang up on whoever is too slow to ask, and on the refused."""
        now = time.monotonic()
        with self._lock:
            late = [
                connection
                for connection, until in self._reading_until.items()
                if until is not None and until < now
            ]
        for connection in late:
            _hang_up(connection)
        self._drain_refused(now)

    def handle_error(self, request: _Request, client_address: object) -> None:
        """A client that breaks off is no news."""
        _LOG.debug("connection of %s broke off", client_address, exc_info=True)

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._reading_until.pop(request, None)

    def _refuse(self, request: socket.socket) -> None:
        """Say 503 without waiting, and linger: closing at once would reset it before it is read."""
        request.setblocking(False)
        with contextlib.suppress(OSError):
            request.send(_BUSY)
            request.shutdown(socket.SHUT_WR)
        with self._lock:
            self._lingering.append((time.monotonic() + _LINGER_S, request))
            oldest = self._lingering.popleft()[1] if len(self._lingering) > _MAX_LINGERING else None
        if oldest is not None:
            oldest.close()

    def _drain_refused(self, now: float) -> None:
        with self._lock:
            waiting, self._lingering = self._lingering, deque()
        kept = [(until, refused) for until, refused in waiting if _still_talks(refused, until, now)]
        with self._lock:
            self._lingering.extend(kept)


def _still_talks(refused: socket.socket, until: float, now: float) -> bool:
    with contextlib.suppress(BlockingIOError):
        try:
            if now < until and refused.recv(65_536):
                return True
        except ConnectionError:
            pass
        refused.close()
        return False
    return True


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

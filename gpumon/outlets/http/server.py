"""The daemon's web server: ``/metrics``, health, the JSON API and the live page."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

from gpumon.core.clock import Clock
from gpumon.core.codecs.stack_codec import Viewer
from gpumon.core.state import CollectorState, MonitorState
from gpumon.errors import GpumonError, UsageError
from gpumon.outlets.http.bounded_server import BoundedServer, Job, PoolKind, Reply, ServerLimits
from gpumon.outlets.http.clients import Client, WebToken, is_loopback
from gpumon.outlets.http.faults import FaultLog
from gpumon.outlets.http.live_state import LiveState, ViewReader
from gpumon.outlets.http.request import Refused, Request, read_head
from gpumon.outlets.http.routes import (
    PUBLIC_PATHS,
    SECURITY_HEADERS,
    STREAM_PATH,
    HistoryReader,
    ReportReader,
    Response,
    Routes,
    sentence,
)
from gpumon.outlets.metrics.prometheus import MetricsExporter

_LOG = logging.getLogger(__name__)

DEFAULT_LISTEN: Final = "127.0.0.1:19835"
_BACKLOG: Final = 128
_LIMITS: Final = ServerLimits()
_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Loopback address of a listener on all addresses."""
_STREAM_SEND_BUFFER_BYTES: Final = 65_536
"""Without this limit the kernel buffers megabytes, many minutes of events, for a client that
stopped reading."""
_EVENTS: Final = "text/event-stream"


class Endpoint(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(listen: str) -> Endpoint:
    """``HOST:PORT`` as host and port.

    Raises:
        UsageError: It is not of that form, or the port is beyond 65535.

    >>> [*map(str, map(parse_listen, ("127.0.0.1:19835", "[::1]:0", ":9")))]
    ['127.0.0.1:19835', '[::1]:0', '0.0.0.0:9']
    """
    host, colon, port = listen.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isascii() or not port.isdecimal() or (":" in bare and bare == host):
        raise UsageError(f"--listen wants HOST:PORT such as {DEFAULT_LISTEN}, got {listen!r}")
    if int(port) > 65_535:
        raise UsageError(f"--listen: port {port} is beyond 65535")
    return Endpoint(bare or "0.0.0.0", int(port))


class HttpServer:
    """Serves the newest published tick on its own threads, whatever the sampler does.

    Attributes:
        endpoints: Where it listens.
        loopback_endpoints: Loopback addresses, on which this machine gets everything.
    """

    def __init__(
        self,
        *listen: str,
        exporter: MetricsExporter,
        clock: Clock,
        report: ReportReader,
        view: ViewReader,
        token: WebToken | None = None,
        limits: ServerLimits = _LIMITS,
    ) -> None:
        """Bind the ports; nothing is answered before ``start``.

        Args:
            listen: Any number of ``HOST:PORT``; port 0 takes any free one. They share the limits.
            exporter: Renders ``/metrics``; the server publishes to it.
            clock: Clock of the states.
            report: Returns the body of ``/api/v1/report`` for a scope, or
                ``None`` before there is one; raises ``UsageError``
                for an unknown run. Called on a thread of the server.
            view: Returns the view of a tick. Called on a thread of the server, one at a time.
            token: Token with which other machines get everything.
            limits: Limits on what clients may use.

        Raises:
            UsageError: A ``listen`` is not ``HOST:PORT``, or two overlap.
            GpumonError: A port is not available; says who uses it. Then none is bound.
        """
        self._exporter = exporter
        self._live = LiveState(clock, view)
        listeners = _bound([parse_listen(word) for word in listen or (DEFAULT_LISTEN,)])
        self.endpoints = tuple(Endpoint(*listener.getsockname()[:2]) for listener in listeners)
        reached = [Endpoint(_LOOPBACK_OF.get(host, host), port) for host, port in self.endpoints]
        self.loopback_endpoints = tuple(
            endpoint for endpoint in reached if is_loopback(endpoint.host)
        )
        self.host, self.port = (self.loopback_endpoints or reached)[0]
        self._live.address = self.address
        self._routes = Routes(live=self._live, exporter=exporter, report=report, token=token)
        self._faults = FaultLog()
        self._server = BoundedServer(
            listeners,
            HttpHandler(self._routes, self._live, limits, self._faults).receive,
            too_long=lambda: encoded(sentence(431, "The head of the request is too long.")),
            busy=lambda: encoded(
                sentence(503, "too many connections, try again.", ("Retry-After", "5"))
            ),
            limits=limits,
            faults=self._faults,
        )

    def read_history_with(self, reader: HistoryReader) -> None:
        """Answer ``/api/v1/history`` of a span with this, on a thread of the server."""
        self._routes.history_reader = reader

    @property
    def address(self) -> str:
        """``host:port`` for this machine: over loopback, if possible."""
        return str(Endpoint(self.host, self.port))

    @property
    def beyond_loopback(self) -> bool:
        """Whether other machines can reach it."""
        return not all(is_loopback(endpoint.host) for endpoint in self.endpoints)

    @property
    def has_streams(self) -> bool:
        """Whether a page is open."""
        return self._server.stream_count > 0

    def start(self) -> None:
        self._server.start()

    def publish(self, state: MonitorState) -> None:
        """Show this tick from now on. Called by one thread; never waits."""
        self._exporter.publish(state)
        self._live.publish(state)

    def collector_state(self) -> CollectorState:
        """State of the server, for ``gpumon_collector_success{collector="web_server"}``."""
        return self._faults.collector_state()

    def close(self) -> None:
        """Stop answering, end all streams and free the ports, within two seconds."""
        self._live.close()
        self._server.close()


def _bound(wanted: Sequence[Endpoint]) -> list[socket.socket]:
    """A bound socket for each, or none at all."""
    taken: dict[Endpoint, Endpoint] = {}
    with contextlib.ExitStack() as on_failure:
        listeners = []
        for endpoint in wanted:
            try:
                address = _resolved(endpoint)
                _refuse_overlap(endpoint, address, taken)
                only_v6 = any(
                    ":" not in other.host and other.port == endpoint.port for other in wanted
                )
                listener = on_failure.enter_context(_listener(address, only_v6=only_v6))
            except OSError as error:
                raise GpumonError(_why_not(endpoint, error)) from error
            taken[address] = endpoint
            listeners.append(listener)
        on_failure.pop_all()
    return listeners


def _resolved(endpoint: Endpoint) -> Endpoint:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, family, socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(0, "no such host") from error
    return Endpoint(str(found[0][4][0]), endpoint.port)


def _refuse_overlap(
    endpoint: Endpoint, address: Endpoint, taken: Mapping[Endpoint, Endpoint]
) -> None:
    for other, listed in taken.items():
        same_family = (":" in other.host) == (":" in address.host)
        is_inside = other.host == address.host or {other.host, address.host} & set(_LOOPBACK_OF)
        if address.port and other.port == address.port and same_family and is_inside:
            raise UsageError(
                f"--listen {listed} and --listen {endpoint} overlap: leave one of them out"
            )


def _listener(address: Endpoint, *, only_v6: bool) -> socket.socket:
    is_v6 = ":" in address.host
    listener = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_v6 and only_v6:  # else it takes IPv4, too, and the other one fails
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _why_not(endpoint: Endpoint, error: OSError) -> str:
    where = f"port {endpoint.port} on {endpoint.host}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is in use{by_whom(endpoint.port)}: stop it, or take another port, "
            "try --listen 127.0.0.1:0"
        )
    if error.errno == errno.EACCES:
        return f"{where} may not be used: take one above 1023, try --listen 127.0.0.1:0"
    return f"cannot listen on {endpoint}: {error.strerror or error}"


def by_whom(port: int) -> str:
    """The process that listens there, as far as this user may see it: " by pid 7 (nginx)"."""
    import psutil  # takes memory: loaded only for this sentence

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            is_it = connection.status == psutil.CONN_LISTEN and [*connection.laddr][1:] == [port]
            if is_it and connection.pid is not None:
                name = psutil.Process(connection.pid).name()
                return f" by pid {connection.pid} ({name})"
    return " by another process"


class HttpHandler:
    """Answers requests with bytes or a stream."""

    def __init__(
        self, routes: Routes, live: LiveState, limits: ServerLimits, faults: FaultLog
    ) -> None:
        self._routes, self._live, self._limits = routes, live, limits
        self._faults = faults

    def receive(self, head: bytes, client: Client) -> Reply | Job:
        """Answer a refusal, a scrape or a health check at once; return a job for others."""
        try:
            request = read_head(head)
            if isinstance(request, Refused):
                return encoded(sentence(request.status, request.text))
            _LOG.debug("%s %s %s", client.key, request.method, request.path)
            if request.method not in ("GET", "HEAD"):
                return encoded(sentence(405, "Only GET and HEAD.", ("Allow", "GET, HEAD")))
            response = self._routes.refusal(request, client)
            if response is not None:
                return encoded(response, request)
        except Exception as error:  # noqa: BLE001 - the loop that all connections share must go on
            self._faults.log("a request cannot be answered", error)
            return broken()
        if request.path == STREAM_PATH:
            if request.method == "HEAD":
                return Reply(_head(200, _EVENTS))
            return Job(PoolKind.STREAM, partial(self._streamed, request, client))
        if request.path in PUBLIC_PATHS:
            return self._answer(request, client)
        return Job(PoolKind.ANSWER, partial(self._answer, request, client))

    def _answer(self, request: Request, client: Client) -> Reply:
        try:
            response = self._routes.answer(request, client)
        except Exception as error:  # noqa: BLE001 - a fault in one answer must not end the server
            self._faults.log(f"{request.path} cannot be answered", error)
            return broken()
        return encoded(response, request)

    def _streamed(self, request: Request, client: Client) -> Callable[[socket.socket], None]:
        return partial(self._stream, self._routes.viewer(request, client))

    def _stream(self, viewer: Viewer, connection: socket.socket) -> None:
        """Send each new tick; a client that does not read is dropped."""
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _STREAM_SEND_BUFFER_BYTES)
            connection.sendall(_head(200, _EVENTS) + b"retry: 2000\n\n" + self._live.age_event())
            tick = 0
            while (newest := self._live.wait_beyond(tick, self._limits.keep_alive_s)) is not None:
                if newest != tick:
                    connection.sendall(self._live.event(viewer))
                connection.sendall(self._live.age_event())
                tick = newest
        except OSError:
            pass  # it has gone, or reads too slowly (TimeoutError)
        except Exception as error:  # noqa: BLE001 - the page reconnects
            self._faults.log(f"{STREAM_PATH} cannot be answered", error)


def broken() -> Reply:
    """The answer to an internal fault, without details."""
    return encoded(sentence(500, "internal error, see the log of gpumon serve"))


def encoded(response: Response, request: Request | None = None) -> Reply:
    """A response as it goes over the wire.

    Args:
        response: The response.
        request: The request; ``None``: it was not understood, and the connection ends.
    """
    keeps = request is not None and request.keeps_connection
    length = ("Content-Length", str(len(response.body)))
    head = _head(response.status, response.content_type, length, *response.headers, keeps=keeps)
    has_body = request is None or request.method != "HEAD"
    return Reply(head + response.body if has_body else head, keeps)


def _head(status: int, content_type: str, *headers: tuple[str, str], keeps: bool = False) -> bytes:
    own = {name for name, _ in headers}
    fields = (
        ("Server", "gpumon"),
        ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
        ("Content-Type", content_type),
        *headers,
        *(field for field in SECURITY_HEADERS if field[0] not in own),
        ("Connection", "keep-alive" if keeps else "close"),
    )
    lines = [f"{name}: {value}" for name, value in fields]
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return "\r\n".join([first, *lines, "", ""]).encode()

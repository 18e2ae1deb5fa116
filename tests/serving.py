"""A web server with a state, and requests to it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple

from gpumon.core.clock import Clock
from gpumon.core.state import MonitorState
from gpumon.outlets.http.bounded_server import ServerLimits
from gpumon.outlets.http.clients import WebToken
from gpumon.outlets.http.live_state import ViewReader
from gpumon.outlets.http.routes import ReportReader, ReportScope
from gpumon.outlets.http.server import HttpServer
from gpumon.outlets.metrics.metric_table import METRICS, MetricSpec
from gpumon.outlets.metrics.metric_values import Reader
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.outlets.text.monitor_view import ViewBuilder
from gpumon.pipeline.state_report import report_of
from tests.builders.state import StoppedClock
from tests.needs import missing
from tests.waiting import PATIENCE_S

_LIMITS = ServerLimits()


def new_views() -> ViewReader:
    """Builds the views of successive states, of the report on each."""
    builder = ViewBuilder()
    return lambda state, cells: builder.view(state, report_of(state), cells)


def no_report(scope: ReportScope) -> None:
    """No report."""


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def read_otherwise(**readers: Reader) -> tuple[MetricSpec, ...]:
    """All metrics, some with other readers."""
    return tuple(replace(spec, read=readers.get(spec.name, spec.read)) for spec in METRICS)


@contextlib.contextmanager
def answering(body: bytes, status: int = 200, *, at: str = "/") -> Iterator[str]:
    """Another web server, with this response below a path; yields ``HOST:PORT``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path.startswith(at) else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def serving(
    *states: MonitorState,
    listen: str | Sequence[str] = "127.0.0.1:0",
    report: ReportReader | None = None,
    view: ViewReader | None = None,
    limits: ServerLimits = _LIMITS,
    token: WebToken | None = None,
    clock: Clock | None = None,
) -> Iterator[HttpServer]:
    """A server with these states; ``view``: by default of the report on each state."""
    clock = clock or StoppedClock()
    exporter = MetricsExporter(clock=clock, version="0.1.0")

    server = HttpServer(
        *([listen] if isinstance(listen, str) else listen),
        exporter=exporter,
        clock=clock,
        report=report or no_report,
        view=view or new_views(),
        limits=limits,
        token=token,
    )
    try:
        server.start()
        for state in states:
            server.publish(state)
        yield server
    finally:
        server.close()


def ask(
    server: HttpServer,
    path: str,
    method: str = "GET",
    host: str | None = None,
    *,
    to: str | None = None,
    **headers: str,
) -> Answer:
    """One request and its response; ``to``: another address than that for this machine."""
    connection = http.client.HTTPConnection(to or server.host, server.port, timeout=PATIENCE_S)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or server.address)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def got(path: str, *states: MonitorState, method: str = "GET", **options: Any) -> Answer:
    """The response of a new server with these states; options as in ``serving``."""
    with serving(*states, **options) as server:
        return ask(server, path, method)


def dial(server: HttpServer, sent: bytes = b"", to: str | None = None) -> socket.socket:
    """A connection that has sent only these bytes."""
    connection = socket.create_connection((to or server.host, server.port), timeout=PATIENCE_S)
    if sent:
        connection.sendall(sent)
    return connection


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has not closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def own_address() -> str:
    """An address of this machine that is not loopback, as for remote clients."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.9", 9))  # sends nothing: only finds the route
            host: str = probe.getsockname()[0]
        except OSError:
            host = "127.0.0.1"
    if host.startswith("127."):
        missing("this machine has no address but loopback")
    return host


def free_port() -> int:
    """A port that no process listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def read_events(server: HttpServer, wanted: int, kind: str = "tick") -> list[str]:
    """The data of the first so many events of a kind."""
    with dial(
        server, f"GET /api/v1/stream HTTP/1.1\r\nHost: {server.address}\r\n\r\n".encode()
    ) as s:
        found: list[str] = []
        event = ""
        for line in s.makefile("r", encoding="utf-8"):
            name, _, value = line.rstrip("\n").partition(": ")
            event = value if name == "event" else event
            if name == "data" and event == kind:
                found.append(value)
            if len(found) == wanted:
                break
        return found

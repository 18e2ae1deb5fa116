"""The daemon's web server: ``/metrics``, health, the JSON API and the live page."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from http.server import BaseHTTPRequestHandler
from typing import Final

from gpumon.core.clock import Clock
from gpumon.core.state import MonitorState
from gpumon.errors import GpumonError, UsageError
from gpumon.outlets.bounded_server import BoundedServer, ServerLimits
from gpumon.outlets.http_handler import handler_type
from gpumon.outlets.http_routes import ReportReader, Routes, is_loopback
from gpumon.outlets.live_state import LiveState, SaidReader, nothing_said
from gpumon.outlets.prometheus import MetricsExporter

DEFAULT_LISTEN: Final = "127.0.0.1:19835"
_POLL_S: Final = 1.0  # how often slow clients are looked for; each look wakes a thread
_WAKE_S: Final = 0.2


def parse_listen(listen: str) -> tuple[str, int]:
    """``HOST:PORT`` as host and port.

    Raises:
        UsageError: It is not of that form, or the port is beyond 65535.

    >>> parse_listen("127.0.0.1:19835"), parse_listen("[::1]:0"), parse_listen(":9")
    (('127.0.0.1', 19835), ('::1', 0), ('0.0.0.0', 9))
    """
    host, colon, port = listen.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isascii() or not port.isdecimal() or (":" in bare and bare == host):
        raise UsageError(f"--listen wants HOST:PORT such as {DEFAULT_LISTEN}, got {listen!r}")
    if int(port) > 65_535:
        raise UsageError(f"--listen: port {port} is beyond 65535")
    return bare or "0.0.0.0", int(port)


class HttpServer:
    """Serves the newest published tick from threads of its own.

    Whatever the sampler does, answers come at once: they are made from the
    last tick that was published.
    """

    def __init__(
        self,
        listen: str = DEFAULT_LISTEN,
        *,
        exporter: MetricsExporter,
        clock: Clock,
        report: ReportReader | None = None,
        said: SaidReader = nothing_said,
        limits: ServerLimits | None = None,
    ) -> None:
        """Bind the port; nothing is answered before ``start``.

        Args:
            listen: ``HOST:PORT``; port 0 takes any free one.
            exporter: Renders ``/metrics``; the server publishes to it.
            clock: The clock of the states.
            report: Returns the body of ``/api/v1/report`` for a scope, or
                ``None`` while there is nothing to tell; raises ``UsageError``
                for a run that is none. Called on a thread of the server.
            said: What the report on a tick says in words, for the page that
                shows that tick. Called on a thread of the server.
            limits: How much the server gives away.

        Raises:
            UsageError: ``listen`` is not ``HOST:PORT``.
            GpumonError: The port cannot be had; says who has it.
        """
        host, port = parse_listen(listen)
        self._limits = limits or ServerLimits()
        self._exporter = exporter
        self._live = LiveState(clock, said)
        self._server = _bound(host, port, self._limits)
        bound_host, self.port = self._server.server_address[:2]
        self.host = str(bound_host)
        self._live.address = self.address
        routes = Routes(live=self._live, exporter=exporter, report=report, bound_host=self.host)
        self._server.RequestHandlerClass = handler_type(routes, self._live, self._limits)
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """``host:port`` as bound."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def beyond_loopback(self) -> bool:
        """Whether other machines can reach it: then only ``/metrics`` and health are served."""
        return not is_loopback(self.host)

    def start(self) -> None:
        """Begin to answer."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="gpumon-http", daemon=True
        )
        self._thread.start()

    def publish(self, state: MonitorState) -> None:
        """Show this tick from now on. Called by one thread; waits for nobody."""
        self._exporter.publish(state)
        self._live.publish(state)

    def close(self) -> None:
        """Stop answering, end all streams and free the port, within two seconds."""
        self._live.close()
        if self._thread is not None:
            self._stop_accepting()
            self._thread.join(1.0)
            self._thread = None
        self._server.disconnect_all()
        self._server.server_close()

    def _stop_accepting(self) -> None:
        stopper = threading.Thread(target=self._server.shutdown, daemon=True)
        stopper.start()
        # A connection wakes the thread that waits for one: it need not sleep to its next look.
        with contextlib.suppress(OSError):
            socket.create_connection((self.host, self.port), _WAKE_S).close()
        stopper.join(1.5)


def _bound(host: str, port: int, limits: ServerLimits) -> BoundedServer:
    try:
        return BoundedServer((host, port), BaseHTTPRequestHandler, limits)
    except OSError as error:
        raise GpumonError(_why_not(host, port, error)) from error


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use{by_whom(port)}: stop it, or take another port, "
            "try --listen 127.0.0.1:0"
        )
    if error.errno == errno.EACCES:
        return (
            f"port {port} on {host} may not be used: take one above 1023, try --listen 127.0.0.1:0"
        )
    return f"cannot listen on {host}:{port}: {error.strerror or error}"


def by_whom(port: int) -> str:
    """Who listens there, as far as the kernel tells this user: " by pid 7 (nginx)"."""
    import psutil  # only needed for this sentence: it stays out of the daemon's memory otherwise

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            is_it = connection.status == psutil.CONN_LISTEN and [*connection.laddr][1:] == [port]
            if is_it and connection.pid is not None:
                name = psutil.Process(connection.pid).name()
                return f" by pid {connection.pid} ({name})"
    return " by another process"

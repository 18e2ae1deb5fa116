"""What each address answers, and to whom: no sockets here.

The server reads; it changes nothing. Still a page in somebody's browser must
not be able to read it through a name that was made to point here (DNS
rebinding), so the ``Host`` header has to be one of this machine's local names.
Beyond loopback only ``/metrics`` and health are served at all.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from gpumon.core.state_codec import encode_document
from gpumon.errors import GpumonError, UsageError
from gpumon.outlets.live_state import LiveState
from gpumon.outlets.page_assets import page_asset
from gpumon.outlets.prometheus import MetricsExporter

_LOG = logging.getLogger(__name__)

STREAM_PATH: Final = "/api/v1/stream"
PUBLIC_PATHS: Final = frozenset({"/metrics", "/-/healthy", "/-/ready"})

SECURITY_HEADERS: Final = (
    ("Content-Security-Policy", "default-src 'self'; base-uri 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)

_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"

_LONGEST_QUERY: Final = 2_000


class ReportScope(NamedTuple):
    """What a report is to be about.

    Attributes:
        since_s: Only the last so many seconds; ``None``: since the daemon began.
        run: Only the run of that label; ``None``: all there was.
    """

    since_s: float | None = None
    run: str | None = None


ReportReader = Callable[[ReportScope], "Mapping[str, Any] | None"]
"""Gives a report; raises ``UsageError`` where there is no such run."""


class Response(NamedTuple):
    """One whole answer."""

    status: int
    content_type: str
    body: bytes


def sentence(status: int, text: str) -> Response:
    """An answer of one sentence, for people and probes."""
    return Response(status, _TEXT, f"{text}\n".encode())


def is_loopback(host: str) -> bool:
    """Whether an address or name can only mean this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    name = host.lower().rstrip(".")
    if name in ("localhost", "::1") or name.endswith(".localhost"):
        return True
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdecimal() for part in parts)


def host_name(header: str) -> str:
    """The name in a ``Host`` header, without its port.

    >>> host_name("localhost:19835"), host_name("[::1]:19835"), host_name("::1")
    ('localhost', '::1', '::1')
    """
    header = header.strip()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header if header.count(":") > 1 else header.partition(":")[0]


class Routes:
    """Finds the answer to a request."""

    def __init__(
        self,
        *,
        live: LiveState,
        exporter: MetricsExporter,
        report: ReportReader | None,
        bound_host: str,
    ) -> None:
        self._live = live
        self._exporter = exporter
        self._report = report
        self._local = is_loopback(bound_host)
        self._routes: dict[str, Callable[[], Response]] = {
            "/-/healthy": lambda: sentence(200, "healthy"),
            "/-/ready": self._ready,
            "/api/v1/state": lambda: self._document(live.document()),
            "/api/v1/history": lambda: Response(200, _JSON, live.history.encode()),
        }

    def refusal(self, path: str, hosts: list[str]) -> Response | None:
        """Why this request is not served, if it is not.

        Args:
            path: Without the query.
            hosts: All ``Host`` headers; browsers always send one.
        """
        if self._local:
            strangers = [host for host in hosts if not is_loopback(host_name(host))]
            if strangers:
                return sentence(403, "Host must be a local name such as localhost or 127.0.0.1.")
        elif path not in PUBLIC_PATHS:
            return sentence(
                403,
                "Beyond loopback only /metrics and health are served: listen on 127.0.0.1 and "
                "reach the page through `ssh -L 19835:127.0.0.1:19835 HOST`.",
            )
        return None

    def answer(self, path: str, accept: str | None, query: str = "") -> Response:
        """The whole answer to a GET of this path.

        Args:
            path: Without the query.
            accept: The ``Accept`` header.
            query: What followed the question mark; only a report takes one:
                ``since=SECONDS`` or ``run=NAME``.
        """
        if path == "/api/v1/report":
            return self._reported(query)
        if path == "/metrics":
            body, content_type = self._exporter.render(accept)
            return Response(200, content_type, body)
        route = self._routes.get(path)
        if route is not None:
            return route()
        asset = page_asset(path)
        if asset is not None:
            return Response(200, asset.content_type, asset.body)
        return sentence(404, "Nothing here: try /, /metrics, /api/v1/state or /api/v1/report.")

    def _ready(self) -> Response:
        if self._live.ready:
            return sentence(200, "ready")
        # Beyond loopback, no sentence that may name a file.
        trouble = self._live.source_trouble if self._local else None
        return sentence(503, f"not ready: {trouble or 'no GPU has been read yet'}")

    def _reported(self, query: str) -> Response:
        scope = _scope(query)
        if scope is None:
            return sentence(
                400, "A report takes ?since=SECONDS, such as ?since=3600, ?run=NAME, or nothing."
            )
        try:
            return self._document(None if self._report is None else self._report(scope))
        except UsageError as error:
            return sentence(404, str(error))
        except GpumonError as error:
            return sentence(503, str(error))

    @staticmethod
    def _document(document: Mapping[str, Any] | None) -> Response:
        if document is None:
            return sentence(503, "nothing to tell yet: no GPU has been read")
        return Response(200, _JSON, encode_document(dict(document)))


def _scope(query: str) -> ReportScope | None:
    """What a query asks for; ``None`` where it makes no sense."""
    name, _, text = query.partition("=")
    if not query:
        return ReportScope()
    if name == "run" and text and len(text) <= _LONGEST_QUERY:
        return ReportScope(run=unquote(text))
    try:
        since_s = float(text)
    except ValueError:
        return None
    if name == "since" and math.isfinite(since_s) and since_s > 0:
        return ReportScope(since_s=since_s)
    return None

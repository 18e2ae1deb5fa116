"""Which path gives which answer, and to whom.

A client from loopback gets everything, whatever address it connected to. Other machines get
``/metrics`` and health, and the rest only with the token. A web page in a browser also comes
from loopback, under a name that was made to resolve to it (DNS rebinding), so the requested host
must be a local name of this machine. Whole paths of a process's files are only for its user, the
daemon's user and whoever shows the token. Scrapes and health are exempt if the
listener can be reached by other machines, where any name may be right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from gpumon.core.clock import LONGEST_LOOK_BACK_S
from gpumon.core.codecs.field_codec import encode_document
from gpumon.core.codecs.stack_codec import ANYBODY, TRUSTED, Viewer
from gpumon.core.codecs.view_codec import encode_view
from gpumon.core.wording import label_text
from gpumon.errors import GpumonError, UsageError
from gpumon.outlets.http.clients import Client, WebToken, host_name, is_loopback
from gpumon.outlets.http.live_state import LiveState
from gpumon.outlets.http.page_files import PAGE_PATHS, page_file
from gpumon.outlets.http.request import Request
from gpumon.outlets.metrics.prometheus import MetricsExporter

STREAM_PATH: Final = "/api/v1/stream"
PUBLIC_PATHS: Final = frozenset({"/metrics", "/-/healthy", "/-/ready"})

SECURITY_HEADERS: Final = (
    ("Content-Security-Policy", "default-src 'self'; base-uri 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)

KEPT_BY_BROWSERS: Final = ("Cache-Control", "private, max-age=86400")
"""Of icons: the one that shows that the daemon is gone must be there by then."""

_NO_GPU: Final = "no GPU can be read now"
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"

SHORTEST_SINCE_S: Final = 0.001
LONGEST_RUN: Final = 512
LONGEST_HISTORY_S: Final = 366 * 86_400.0
_CLOCKS_APART_S: Final = 60.0
"""A page's clock may be ahead of this machine's by as much."""
_NUMBER: Final = re.compile(r"[0-9.eE+-]{1,40}")
_LONGEST_SHOWN: Final = 60
_FORWARDED: Final = frozenset({"forwarded", "via", "x-forwarded-for", "x-real-ip"})
"""Fields that proxies add."""


class ReportScope(NamedTuple):
    """The scope of a report.

    Attributes:
        since_s: Length of the window before now, in seconds; ``None``: since the daemon began.
        run: Only the run of that label; ``None``: all runs.
        has_lanes: Whether to include lanes.
        viewer: Who reads it.
    """

    since_s: float | None = None
    run: str | None = None
    has_lanes: bool = False
    viewer: Viewer = ANYBODY


ReportReader = Callable[[ReportScope], "Mapping[str, Any] | None"]
"""Returns a report; raises ``UsageError`` if there is no such run."""


HistoryReader = Callable[[tuple[float, float]], "bytes | None"]
"""Returns the body of ``/api/v1/history`` for a span in seconds since the epoch."""


class Response(NamedTuple):
    """A complete answer."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def sentence(status: int, text: str, *headers: tuple[str, str]) -> Response:
    """An answer of one sentence, for people and probes."""
    return Response(status, _TEXT, f"{text}\n".encode(errors="backslashreplace"), headers)


class Routes:
    """Finds the answer to a request.

    Attributes:
        history_reader: Answers for a span; ``None``: only the last minutes by point are known.
    """

    def __init__(
        self,
        *,
        live: LiveState,
        exporter: MetricsExporter,
        report: ReportReader,
        token: WebToken | None,
    ) -> None:
        self._live = live
        self._exporter = exporter
        self._report = report
        self._token = token
        self.history_reader: HistoryReader | None = None

    def refusal(self, request: Request, client: Client) -> Response | None:
        """The refusal of this request, or ``None`` if the client may have an answer."""
        is_open = request.path in PUBLIC_PATHS and not client.came_to_loopback
        # Browsers always name a host.
        is_local_name = request.host is None or is_loopback(host_name(request.host))
        if is_open or (client.is_local and is_local_name):
            return None
        if client.is_local:
            return sentence(403, "Host must be a local name such as localhost or 127.0.0.1.")
        if self._token is None:
            return sentence(
                403,
                "Beyond loopback only /metrics and health are served: reach the page through "
                "`ssh -L PORT:127.0.0.1:PORT HOST`, with the port of this address, or serve it "
                "with --web-token-file.",
            )
        if self._token.is_shown(request.fields.get("authorization", "")):
            return None
        challenge = ("WWW-Authenticate", 'Basic realm="gpumon", charset="UTF-8"')
        return sentence(401, "The password is the token of --web-token-file.", challenge)

    def viewer(self, request: Request, client: Client) -> Viewer:
        """Who reads the answer to this request."""
        shown = request.fields.get("authorization", "")
        if self._token is not None and self._token.is_shown(shown):
            return TRUSTED
        if not _FORWARDED.isdisjoint(request.fields):  # the connection is a proxy's
            return ANYBODY
        uid = client.user()
        return Viewer(uid, is_trusted=uid == os.geteuid())

    def answer(self, request: Request, client: Client) -> Response:
        """The answer to a GET; only a report and a history use the query."""
        match request.path:
            case "/-/healthy":
                return sentence(200, "healthy")
            case "/-/ready":
                return self._ready(client)
            case "/metrics":
                return self._metrics(request)
            case "/api/v1/state":
                return self._document(self._live.document(self.viewer(request, client)))
            case "/api/v1/view":
                view = self._live.view(self.viewer(request, client))
                return self._document(None if view is None else encode_view(view))
            case "/api/v1/history":
                return self._kept(request.query)
            case "/api/v1/report" | "/api/v1/report/lanes":
                return self._reported(request, client)
            case path if path in PAGE_PATHS:
                is_document = path == "/"
                view = self._live.view(self.viewer(request, client)) if is_document else None
                kept = (KEPT_BY_BROWSERS,) if path.startswith("/favicon") else ()
                return Response(200, *page_file(path, view), kept)
        return sentence(404, "Nothing here: try /, /metrics, /api/v1/state or /api/v1/report.")

    def _metrics(self, request: Request) -> Response:
        fields = request.fields
        rendered = self._exporter.render(fields.get("accept"), fields.get("accept-encoding"))
        encoding = (("Content-Encoding", "gzip"),) if rendered.is_gzip else ()
        headers = (*encoding, ("Vary", "Accept, Accept-Encoding"))
        return Response(200, rendered.content_type, rendered.body, headers)

    def _ready(self, client: Client) -> Response:
        trouble = self._live.source_trouble
        if trouble is None:
            return sentence(200, "ready")
        # To other machines, no sentence that may name a file.
        return sentence(503, f"not ready: {trouble if client.is_local else _NO_GPU}")

    def _reported(self, request: Request, client: Client) -> Response:
        scope = report_scope(request.query)
        if isinstance(scope, str):
            return sentence(400, scope)
        has_lanes, viewer = request.path.endswith("/lanes"), self.viewer(request, client)
        try:
            return self._document(self._report(scope._replace(has_lanes=has_lanes, viewer=viewer)))
        except UsageError as error:
            return sentence(404, str(error))
        except GpumonError as error:
            return sentence(503, str(error))

    def _kept(self, query: str) -> Response:
        """The last minutes by point, or a span in cells."""
        if not query or self.history_reader is None:
            return Response(200, _JSON, self._live.history.encode())
        now_s = self._live.wall_time_s
        if now_s is None:
            return self._document(None)
        span = history_span(query, now_s)
        if isinstance(span, str):
            return sentence(400, span)
        body = self.history_reader(span)
        return (
            sentence(503, "the history cannot be read now")
            if body is None
            else (Response(200, _JSON, body))
        )

    @staticmethod
    def _document(document: Mapping[str, Any] | None) -> Response:
        if document is None:
            return sentence(503, "nothing yet: no GPU has been read")
        return Response(200, _JSON, encode_document(dict(document)))


def report_scope(query: str) -> ReportScope | str:
    """The scope that a query requests, or a sentence on what is wrong with it.

    >>> report_scope("since=90").since_s, report_scope("run=a%20b").run
    (90.0, 'a b')
    >>> report_scope("since=lunch")
    'since=lunch must be a number of seconds from 0.001 to 315360000, such as since=3600.'
    """
    if not query:
        return ReportScope()
    name, _, text = query.partition("=")
    if name not in ("since", "run") or "&" in text:
        return (
            "A report takes ?since=SECONDS, such as ?since=3600, or ?run=NAME, or nothing: "
            f"not {_shown(query)}."
        )
    if name == "run":
        run = unquote(text)
        if run and len(run) <= LONGEST_RUN and run.isprintable():
            return ReportScope(run=run)
        return f"run={_shown(text)} must be a name of 1 to {LONGEST_RUN} printable characters."
    since_s = _number(text)
    if since_s is not None and SHORTEST_SINCE_S <= since_s <= LONGEST_LOOK_BACK_S:
        return ReportScope(since_s=since_s)
    return (
        f"since={_shown(text)} must be a number of seconds from {SHORTEST_SINCE_S:g} to "
        f"{LONGEST_LOOK_BACK_S:.0f}, such as since=3600."
    )


def history_span(query: str, now_s: float) -> tuple[float, float] | str:
    """The span that a query requests, or a sentence on what is wrong with it.

    >>> history_span("from=1000&to=1060", 2000.0)
    (1000.0, 1060.0)
    >>> history_span("from=1060&to=1000", 2000.0)
    'The span ends before it begins: from must be less than to.'
    """
    fields = dict(part.partition("=")[::2] for part in query.split("&"))
    if set(fields) != {"from", "to"} or query.count("&") != 1:
        return (
            f"A history takes ?from=UNIX_SECONDS&to=UNIX_SECONDS, or nothing: not {_shown(query)}."
        )
    from_s, to_s = _number(fields["from"]), _number(fields["to"])
    if from_s is None or to_s is None or not 0 <= from_s < 1e11 or not 0 <= to_s < 1e11:
        return f"from and to must be numbers of seconds since 1970: not {_shown(query)}."
    if to_s <= from_s:
        return "The span ends before it begins: from must be less than to."
    if to_s - from_s > LONGEST_HISTORY_S:
        return f"The span must be at most {LONGEST_HISTORY_S / 86_400:.0f} days long."
    if from_s > now_s or to_s > now_s + _CLOCKS_APART_S:
        return f"The span lies in the future: it is {now_s:.0f} now."
    return from_s, min(to_s, max(now_s, from_s + 1))


def _number(text: str) -> float | None:
    """The number; ``None`` if it is none, or is written in an unusual way."""
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _shown(text: str) -> str:
    return label_text(text, _LONGEST_SHOWN)

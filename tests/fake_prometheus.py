"""A Prometheus of known figures on loopback, which knows only the queries of a report on many
machines, and can misbehave.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs

NOW_S = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC, the server's clock, which `StoppedClock` shows, too."""
HOUR_S = 3_600.0
WEEK_S = 7 * 86_400.0

Labels = Mapping[str, str]
_RECORD = re.compile(r"([a-z_]+(?::[a-z_]+)?):(increase|count)(5m|1h)(?:\{(.*)\})?\[\d+m?s\]|$")
_MATCHER = re.compile(r'(\w+)(=~|!~|=|!=)("(?:[^"\\]|\\.)*")')
_BY = re.compile(r"\b(?:sum|count) by \(([\w, ]+)\)")
_TOP = re.compile(r"^topk\((\d+), ")


class Series(NamedTuple):
    """What a rule recorded for one label set: the same in each tile."""

    record: str
    labels: Labels
    whole: float
    """Over the entire span, if no tile is missing."""


class Reply(NamedTuple):
    """A raw answer."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    head: Mapping[str, str] = {}


class FakePrometheus:
    """The figures, and the requests that came.

    Attributes:
        series: What rules recorded.
        counters: What is found by a query with this text in it.
        missing: Numbers of the tiles that were not evaluated, from 0, the oldest.
        misbehave: Answers a query instead, unless it returns ``None``.
        warnings: Of each answer.
        date: What its answers give as their date; ``None``: none.
        delay_s: Before each byte of an answer, which then never ends.
    """

    def __init__(self, series: Sequence[Series] = ()) -> None:
        self.address = ""
        self.server: ThreadingHTTPServer
        self.reset(series)

    def reset(self, series: Sequence[Series]) -> None:
        """Behave again, with these figures."""
        self.series = list(series)
        self.counters: dict[str, list[tuple[Labels, float]]] = {}
        self.missing: frozenset[int] = frozenset()
        self.misbehave: Callable[[str], Reply | None] = lambda query: None
        self.warnings: list[str] = []
        self.delay_s = 0.0
        self.date: str | None = formatdate(NOW_S, usegmt=True)
        self.queries: list[str] = []
        self.heads: list[Mapping[str, str]] = []
        self.paths: list[str] = []

    def serve_with(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )

    def reply(self, query: str) -> Reply:
        self.queries.append(query)
        found = self.misbehave(query)
        if found is not None:
            return found
        kind, result = self._result(query)
        document: dict[str, Any] = {
            "status": "success",
            "data": {"resultType": kind, "result": result},
        }
        if self.warnings:
            document["warnings"] = self.warnings
        return Reply(json.dumps(document).encode())

    def _result(self, query: str) -> tuple[str, list[dict[str, Any]]]:
        if query == "vector(1)":
            return "vector", [_instant({}, 1.0)]
        if any(name in query for name in self.counters):
            rows = next(rows for name, rows in self.counters.items() if name in query)
            return "vector", [_instant(labels, value) for labels, value in rows]
        record, kind, tile, matchers = _RECORD.search(query).groups()  # type: ignore[union-attr]
        if record is None:
            return "vector", []
        found = [
            one
            for one in self.series
            if one.record == record and _matches(one.labels, matchers or "")
        ]
        if query.startswith(record):
            return "matrix", [self._tiles(one, tile) for one in found if one.whole]
        share = 1.0 if kind == "count" else 1 - len(self.missing) / len(self._ends(tile))
        return "vector", _aggregated(query, found, share)

    def _ends(self, tile: str) -> list[float]:
        tile_s, span_s = (HOUR_S, WEEK_S) if tile == "1h" else (300.0, 86_400.0)
        count = round(span_s / tile_s)
        return [NOW_S - 60 - tile_s * (count - 1 - number) for number in range(count)]

    def _tiles(self, one: Series, tile: str) -> dict[str, Any]:
        ends = self._ends(tile)
        values = [
            [end, str(one.whole / len(ends))]
            for number, end in enumerate(ends)
            if number not in self.missing
        ]
        return {"metric": dict(one.labels), "values": values}


def _instant(labels: Labels, value: float) -> dict[str, Any]:
    return {"metric": dict(labels), "value": [NOW_S, str(value)]}


def _matches(labels: Labels, matchers: str) -> bool:
    for name, operator, quoted in _MATCHER.findall(matchers):
        pattern, text = json.loads(quoted), labels.get(name, "")
        is_same = bool(re.fullmatch(pattern, text)) if "~" in operator else pattern == text
        if is_same == operator.startswith("!"):
            return False
    return True


def _aggregated(query: str, found: Sequence[Series], share: float) -> list[dict[str, Any]]:
    by = _BY.search(query)
    names = by[1].split(", ") if by else []
    once: dict[tuple[tuple[str, str], ...], float] = {}
    for one in found:
        labels = {**one.labels, "of": re.sub("-r[0-9]+$", "", one.labels.get("run", ""))}
        key = tuple(sorted((name, text) for name, text in labels.items() if name != "replica"))
        once[key] = max(once.get(key, 0.0), one.whole)
    sums: dict[tuple[tuple[str, str], ...], float] = defaultdict(float)
    for key, whole in once.items():
        sums[tuple((name, text) for name, text in key if name in names and text)] += whole * share
    rows = sorted(sums.items(), key=lambda row: -row[1])
    if query.startswith("count "):
        return [_instant({}, float(len([1 for _, value in rows if value > 0])))] if rows else []
    top = _TOP.search(query)
    return [_instant(dict(key), value) for key, value in rows[: int(top[1]) if top else None]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body of an answer are sent one after the other
    fake: FakePrometheus

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.fake.paths.append(self.path)
        self.fake.heads.append(dict(self.headers.items()))
        reply = self.fake.reply(parse_qs(body)["query"][0])
        self.send_response_only(reply.status)
        head = {"Content-Type": reply.kind, "Content-Length": str(len(reply.body)), **reply.head}
        if self.fake.delay_s:
            head["Content-Length"] = "1000000"
        if self.fake.date is not None:
            head = {"Date": self.fake.date, **head}
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # the client hangs up
            while self.fake.delay_s:
                time.sleep(self.fake.delay_s)
                self.wfile.write(b" ")
                self.wfile.flush()
            self.wfile.write(reply.body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients hang up."""


@contextmanager
def running(fake: FakePrometheus) -> Iterator[FakePrometheus]:
    """Serve it on a port of its own."""
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = _Server(("127.0.0.1", 0), handler)
    fake.server = server
    fake.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# -- a fleet ------------------------------------------------------------------------


def fleet(hosts: int = 20) -> list[Series]:
    """Twenty hosts of 8 GPUs in a week of 1,344 GPU-hours each.

    Half of them starve, 40 % of their time, in four runs of two users; the others lose a tenth to
    checkpoints, and are not in use for a fifth of the time.
    """
    series: list[Series] = []
    whole = 8 * WEEK_S
    for number in range(hosts):
        is_starved = number < hosts // 2
        on_host = {"host": f"node-{number:02}"}
        run = f"late-{number % 4}" if is_starved else f"good-{number}"
        user = f"ann-{number % 2}" if is_starved else "bob"
        cause, lost, unused = ("input_wait", 0.4, 0.0) if is_starved else ("checkpoint", 0.1, 0.2)
        busy = 1 - lost - unused
        of_cause = {"cause": cause}
        for record, labels, share in (
            ("host:gpumon_gpu_observed_seconds", on_host, 1.0),
            ("host:gpumon_gpu_busy_seconds", on_host, busy),
            ("run:gpumon_training_gpu_busy_seconds", {"run": run}, busy),
            ("user:gpumon_user_gpu_busy_seconds", {"user": user}, busy),
            ("gpumon:gpu_busy_seconds", {}, busy),
            ("gpumon:gpu_observed_seconds", {}, 1.0),
            ("gpumon:gpu_expected_seconds", {}, 1.0),
            ("gpumon:gpu_not_in_use_seconds", {}, unused),
            ("host_cause:gpumon_gpu_lost_seconds", {**on_host, **of_cause}, lost),
            ("run_cause:gpumon_training_gpu_lost_seconds", {"run": run, **of_cause}, lost),
            ("user_cause:gpumon_user_gpu_lost_seconds", {"user": user, **of_cause}, lost),
            ("cause:gpumon_gpu_lost_seconds", of_cause, lost),
            ("host_reason:gpumon_gpu_input_wait_seconds", {**on_host, "reason": "cpu_bound"},
             lost if is_starved else 0.0),
            ("use:gpumon_gpu_use_energy_joules", {"use": "lost"}, 100 * lost),
            ("use:gpumon_gpu_use_energy_joules", {"use": "busy"}, 600 * busy),
        ):  # fmt: skip
            series.append(Series(record, labels, share * whole))
    series += [Series("gpumon:gpus", {}, 8.0 * hosts), Series("gpumon:hosts", {}, float(hosts))]
    return _summed(series)


def _summed(series: Sequence[Series]) -> list[Series]:
    """One series for each label set."""
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
    for one in series:
        sums[one.record, tuple(sorted(one.labels.items()))] += one.whole
    return [Series(record, dict(labels), whole) for (record, labels), whole in sums.items()]

"""A daemon, pinned word for word: the refusals of its web server, and its log."""

from __future__ import annotations

import pytest

from gpumon.core.sample import FieldFault
from gpumon.core.state import CollectorState
from gpumon.outlets.http.bounded_server import ServerLimits
from tests.builders.state import healthy_gpu, monitor_state
from tests.daemon_log import DaemonLog, failing
from tests.golden_files import Chapters, golden_story
from tests.serving import dial, serving

BROKEN = CollectorState("nvml", False, 0.0, 1, "no driver: load one")
UNREAD = monitor_state(samples_total=0, collectors=(BROKEN,))
TOO_LONG = "GET /" + "x" * 20_000
QUERIES = ("since=lunch", "since=0", "since=1e9", "run=", "runs=x", "since=1&run=x", "run=missing")


@golden_story
def test_refusals_of_the_server() -> Chapters:
    def broken(_: object) -> None:
        raise ZeroDivisionError("a fault")

    def answer_to(line: str, host: str = "localhost") -> str:
        asked = f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        with dial(server, asked.encode()) as client:
            head, _, body = client.makefile("rb").read().decode().partition("\r\n\r\n")
        return f"{head.splitlines()[0]}\n{body}"

    with serving(limits=ServerLimits(max_streams=0)) as server:
        chapters = {
            line: answer_to(line)
            for line in (
                "GET *", "GET http://user@localhost/", "GET /nothing", "POST /", "OPTIONS *",
                "GET /-/ready", "GET /api/v1/state", "GET /api/v1/report", "GET /api/v1/stream",
                *(f"GET /api/v1/report?{query}" for query in QUERIES),
            )
        }  # fmt: skip
        chapters["a head that is too long"] = answer_to(TOO_LONG)
        chapters["a header with a space"] = answer_to("GET /", "a b")
        chapters["a foreign host name"] = answer_to("GET /api/v1/state", "evil.example")
    with serving(UNREAD) as server:
        chapters["GET /-/ready, where no driver is"] = answer_to("GET /-/ready")
    with serving(report=broken) as server:
        chapters["GET /api/v1/report, where there is a fault"] = answer_to("GET /api/v1/report")
    return chapters


@golden_story
def test_words_of_the_log(caplog: pytest.LogCaptureFixture) -> Chapters:
    log = DaemonLog(caplog)
    well = BROKEN._replace(success=True, message=None)
    bad_ring = CollectorState("phase_rings", True, 0.0, 1, "1-1.ring: is no ring")
    failed = FieldFault("memory", "no answer", 0)
    gone = healthy_gpu(present=False, listed=False)
    logged = {
        "a collector fails": log.lines(BROKEN),
        "it is well again": log.lines(*[well] * 20),
        "what other people wrote": log.lines(bad_ring),
        "a field fails": log.saw(failing(healthy_gpu(), failed), times=20),
        "it works again": log.saw(healthy_gpu(), times=20),
        "an XID": log.saw(healthy_gpu(xid_errors=((79, 1),))),
        "a GPU vanishes": log.saw(gone),
        "it is back": log.saw(healthy_gpu(), times=20),
    }
    return {title: "\n".join(lines) for title, lines in logged.items()}

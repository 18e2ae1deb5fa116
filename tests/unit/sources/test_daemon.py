"""Specification of asking a daemon: its report, or one sentence that says what to start."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.report_codec import encode_report, encode_report_with_lanes
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.phase import IdleCause
from gpumon.core.report.lanes import Lanes, ReportWithLanes
from gpumon.errors import NoDaemonError, UsageError
from gpumon.sources import daemon
from gpumon.sources.daemon import (
    SilentDaemon,
    fetch_report,
    fetch_report_with_lanes,
    find_silent_daemon,
    find_state_file,
    read_state,
)
from gpumon.sources.ring_reader.daemon_folder import HeldFolder
from tests.builders.report import gpu, report
from tests.builders.time import HandClock, s
from tests.neighbours import OTHER_UID, as_root
from tests.patience import wait_until
from tests.serving import answering

BOOT = "b00t"
REPORT = report(gpu(40, {IdleCause.INPUT_WAIT: 20}))


def state_file(folder: Path, **changes: object) -> Path:
    state = {"monotonic_ns": s(1000), "period_ns": s(1), "boot_id": BOOT, "address": "x:1"}
    path = folder / "state.json"
    path.write_text(json.dumps({**state, **changes}), encoding="utf-8")
    return path


@contextmanager
def dripping(first: bytes = b"", drop: bytes = b"H") -> Iterator[str]:
    """A server that sends some bytes at once, and then a drop now and then; gives ``HOST:PORT``."""
    listener = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(first)
            while not is_over.wait(0.02):
                connection.sendall(drop)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        is_over.set()
        thread.join()
        listener.close()


class Redirecting:
    """A server that sends everybody to another address.

    Attributes:
        asked: How often it was asked.
    """

    def __init__(self, where: str, status: int) -> None:
        self.asked = 0

        class Handler(BaseHTTPRequestHandler):
            def do_GET(_) -> None:  # noqa: N805 (self is the server)
                self.asked += 1
                _.send_response(status)
                if where:
                    _.send_header("Location", where)
                _.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"


@contextmanager
def redirecting(where: str, status: int) -> Iterator[Redirecting]:
    one = Redirecting(where, status)
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield one
    finally:
        one.server.shutdown()
        thread.join()
        one.server.server_close()


OK = b"HTTP/1.0 200 OK\r\n"
SLOW: dict[str, tuple[bytes, bytes]] = {
    "its first line": (b"", b"H"),
    "its headers": (OK, b"x"),
    "its body": (OK + b"\r\n{", b" "),
    "a body of known length": (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n{", b" "),
    "nothing": (b"", b""),
}
"""What never comes to its end: the bytes at once, and the drop."""


serving = partial(answering, at="/api/v1/report")


def sentence_of(path: Path) -> str | None:
    """What reading that state is refused with; ``None``: it was still waiting after 5 s."""
    reported: list[str] = []

    def read() -> None:
        with pytest.raises(NoDaemonError, match="cannot be") as raised:
            read_state(path, HandClock(), BOOT)
        reported.append(str(raised.value))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(5)
    return reported[0] if reported else None


class TestADaemonThatRuns:
    @pytest.mark.parametrize("scheme", ["", "http://"])
    def test_returns_its_report(self, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        with serving(json.dumps(encode_report(REPORT)).encode()) as address:
            found = fetch_report({"address": scheme + address})

        assert found.gpus[0].totals == REPORT.gpus[0].totals

    def test_returns_its_lanes_on_request(self) -> None:
        lanes = Lanes(
            tuple(Lane(start_ns=REPORT.origin_ns, end_ns=REPORT.origin_ns) for _ in REPORT.gpus)
        )
        body = json.dumps(encode_report_with_lanes(ReportWithLanes(REPORT, lanes))).encode()
        with answering(body, at="/api/v1/report/lanes") as address:
            reported = fetch_report_with_lanes({"address": address})

        assert reported.lanes == Lanes((Lane(),))

    def test_may_be_too_old_for_lanes(self) -> None:
        with (
            answering(b"Nothing here: try /\n", 404) as address,
            pytest.raises(NoDaemonError, match="older than this gpumon"),
        ):
            fetch_report_with_lanes({"address": address}, run="train")


class TestOneSentenceComes:
    """Which ones, ``tests/golden`` shows."""

    @pytest.mark.parametrize(
        ("now_s", "boot", "text"), [(1060.0, BOOT, " 60 s"), (1000.5, "another", "last reboot")]
    )
    def test_after_it_has_stopped(self, tmp_path: Path, now_s: float, boot: str, text: str) -> None:
        with pytest.raises(NoDaemonError, match=text):
            read_state(state_file(tmp_path), HandClock(now_s), boot)

    @pytest.mark.parametrize(
        ("address", "text"),
        [
            (None, "--listen"),
            ("127.0.0.1:9", "refused"),
            ("ftp://127.0.0.1:9", "not an http"),
            ("no such host:x", "port"),
        ],
    )
    def test_where_no_one_answers(self, address: str | None, text: str) -> None:
        with pytest.raises(NoDaemonError, match=text):
            fetch_report({"address": address})

    @pytest.mark.parametrize(
        ("body", "status", "text"),
        [
            (b"", 503, "status 503"),
            (b"<html>", 200, "line 1"),
            (b'{"schema": "other/1"}', 200, "other/1"),
            (b"not found\n", 404, "status 404"),
            (b"no\n", 401, r"--listen 127\.0\.0\.1:19835"),
            (b"no\n", 403, r"--listen 127\.0\.0\.1:19835"),
        ],
    )
    def test_for_an_answer_that_is_no_report(self, body: bytes, status: int, text: str) -> None:
        with serving(body, status) as address, pytest.raises(NoDaemonError, match=text):
            fetch_report({"address": address})

    @pytest.mark.parametrize("what", SLOW)
    def test_that_comes_a_byte_at_a_time_is_given_up_after_ten_seconds(
        self, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert daemon._PATIENCE_S == 10.0
        monkeypatch.setattr(daemon, "_PATIENCE_S", 0.2)

        with (
            dripping(*SLOW[what]) as address,
            pytest.raises(NoDaemonError, match=r"no complete answer within 0\.2 s"),
        ):
            fetch_report({"address": address})

        def is_left() -> bool:
            return any(one.name == "gpumon-ask" for one in threading.enumerate())

        wait_until(lambda: not is_left())

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_for_a_redirect_which_is_not_followed(self, status: int) -> None:
        with redirecting("", 200) as elsewhere:
            other = f"http://{elsewhere.address}/api/v1/report"
            with (
                redirecting(other, status) as first,
                pytest.raises(NoDaemonError, match=f"redirects to {re.escape(other)}, which"),
            ):
                fetch_report({"address": first.address})

        assert (first.asked, elsewhere.asked) == (1, 0)

    def test_for_an_answer_that_is_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(daemon, "_MAX_REPORT_BYTES", 1 << 20)

        with (
            serving(b" " * ((1 << 20) + 1)) as address,
            pytest.raises(NoDaemonError, match="sends more than 1 MiB"),
        ):
            fetch_report({"address": address})


class TestATimeOrARunThatIsNone:
    @pytest.mark.parametrize(
        ("asked", "status", "text"),
        [
            ({"since_s": 1e308}, 400, "since=1e308 must be ..."),
            ({"run": "x y/z"}, 404, "no run is called 'x' here; the runs here: train and eval"),
            ({"run": "\udcff"}, 404, "no run is called that"),
        ],
    )
    def test_is_refused_in_the_daemons_own_words(
        self, asked: dict[str, Any], status: int, text: str
    ) -> None:
        with serving(f"{text}\n".encode(), status) as address, pytest.raises(UsageError) as raised:
            fetch_report({"address": address}, **asked)

        assert str(raised.value) == text


def environ_of(folder: Path) -> dict[str, str]:
    return {"GPUMON_RUNTIME_DIR": str(folder)}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that a daemon holds."""
    held = HeldFolder(environ_of(tmp_path / "held"))
    yield tmp_path / "held"
    held.close()


class TestADaemonThatIsSilent:
    """It lives, for it holds its folder; and it renews nothing."""

    @pytest.mark.parametrize("mode", [0o700, 0o755])
    def test_is_found_by_the_folder_that_it_holds(self, tmp_path: Path, mode: int) -> None:
        tmp_path.chmod(mode)
        held = HeldFolder(environ_of(tmp_path))
        state_file(tmp_path, pid=os.getpid())

        silent = find_silent_daemon(environ_of(tmp_path), now_ns=s(1005))

        held.close()
        assert silent == SilentDaemon(os.getpid(), s(5))

    @pytest.mark.parametrize(
        ("now_s", "state"),
        [
            pytest.param(1001, {"pid": os.getpid()}, id="that speaks"),
            pytest.param(1005, {"pid": os.getpid(), "period_ns": s(10)}, id="that speaks seldom"),
            pytest.param(1005, {"pid": os.getpid() + 1}, id="that took a dead one's folder"),
            pytest.param(500, {"pid": os.getpid()}, id="from before a reboot"),
            pytest.param(1005, {"pid": None}, id="that names none"),
        ],
    )
    def test_is_none(self, folder: Path, now_s: int, state: dict[str, object]) -> None:
        state_file(folder, **state)

        assert find_silent_daemon(environ_of(folder), now_ns=s(now_s)) is None

    def test_is_none_that_died_though_another_process_has_its_pid(self, tmp_path: Path) -> None:
        state_file(tmp_path, pid=os.getpid())

        assert find_silent_daemon(environ_of(tmp_path), now_ns=s(1005)) is None


class TestAStateFile:
    @pytest.mark.parametrize("period_s", [1, 10])
    def test_is_found_while_it_is_fresh_for_three_periods(
        self, tmp_path: Path, period_s: int
    ) -> None:
        path = state_file(tmp_path, period_ns=s(period_s))
        late_ns = s(1000 + 3 * period_s)

        assert find_state_file(environ_of(tmp_path), now_ns=late_ns) == path
        assert find_state_file(environ_of(tmp_path), now_ns=late_ns + 1) is None

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", '{"monotonic_ns": "x"}', "[" * 200_000], ids=range(6)
    )
    def test_that_is_invalid_is_refused(self, folder: Path, text: str) -> None:
        (folder / "state.json").write_text(text)

        assert find_state_file(environ_of(folder), now_ns=s(1)) is None
        assert find_silent_daemon(environ_of(folder), now_ns=s(1005)) is None
        assert sentence_of(folder / "state.json") is not None

    @pytest.mark.parametrize("is_held_open", [False, True])
    def test_that_is_a_pipe_is_refused_at_once(self, folder: Path, is_held_open: bool) -> None:
        path = folder / "state.json"
        os.mkfifo(path)
        held = os.open(path, os.O_RDWR) if is_held_open else None
        try:
            assert find_state_file(environ_of(folder), now_ns=s(1000)) is None
            assert sentence_of(path) is not None
        finally:
            if held is not None:
                os.close(held)

    def test_that_is_a_link_is_refused(self, folder: Path, tmp_path: Path) -> None:
        (folder / "state.json").symlink_to(state_file(tmp_path))

        assert find_state_file(environ_of(folder), now_ns=s(1000)) is None
        assert sentence_of(folder / "state.json") is not None


@as_root
class TestAStateFileOfANeighbour:
    """Who made ``/tmp/gpumon-7`` before user 7 did, and says where a report is to be had."""

    @pytest.fixture
    def made(self) -> Iterator[Path]:
        folder = Path("/tmp/gpumon-54323")
        folder.mkdir(mode=0o755)
        state = {"monotonic_ns": time.monotonic_ns(), "period_ns": 3600 * NS_PER_S}
        (folder / "state.json").write_text(json.dumps(state))
        yield folder
        shutil.rmtree(folder)

    def found(self) -> Path | None:
        return find_state_file({"XDG_RUNTIME_DIR": "/nowhere"})

    def test_is_not_believed(self, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 54_323)
        os.chown(made, 54_323, -1)
        own = self.found()
        os.chown(made, OTHER_UID, -1)

        if own is not None and not own.is_relative_to(made):
            pytest.skip(f"a real daemon of this machine comes first: {own}")
        assert own == made / "state.json"
        assert self.found() is None

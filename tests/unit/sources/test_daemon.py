"""Tests of finding a daemon and fetching its report, or the one sentence on what to start."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
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
from gpumon.sources.ring_reader.daemon_folder import LockedFolder
from tests.builders.report import gpu, report
from tests.builders.time import HandClock, s
from tests.other_users import OTHER_UID, as_root
from tests.serving import answering

BOOT = "b00t"
REPORT = report(gpu(40, {IdleCause.INPUT_WAIT: 20}))
serving = partial(answering, at="/api/v1/report")


def state_file(folder: Path, **changes: object) -> Path:
    state = {"monotonic_ns": s(1000), "period_ns": s(1), "boot_id": BOOT, "address": "x:1"}
    path = folder / "state.json"
    path.write_text(json.dumps({**state, **changes}), encoding="utf-8")
    return path


def environ_of(folder: Path) -> dict[str, str]:
    return {"GPUMON_RUNTIME_DIR": str(folder)}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that a daemon has locked."""
    held = LockedFolder(environ_of(tmp_path / "held"))
    yield tmp_path / "held"
    held.close()


@contextmanager
def dripping(first: bytes, drop: bytes, is_over: threading.Event | None = None) -> Iterator[str]:
    """A server that sends ``first`` at once, then ``drop`` again and again; yields HOST:PORT.

    It resets the connection once it ``is_over``.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    is_over = is_over or threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(first)
            while not is_over.wait(0.02):
                connection.sendall(drop)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        is_over.set()
        thread.join()
        listener.close()


@contextmanager
def redirecting(where: str, status: int) -> Iterator[tuple[str, list[str]]]:
    """A server that redirects every request; yields HOST:PORT and the paths of its requests."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            if where:
                self.send_header("Location", where)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TestFetchReport:
    @pytest.mark.parametrize("scheme", ["", "http://"])
    @pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
    def test_returns_the_report_without_a_proxy(
        self, scheme: str, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        with serving(json.dumps(encode_report(REPORT)).encode()) as address:
            found = fetch_report({"address": scheme + address})

        assert found.gpus[0].totals == REPORT.gpus[0].totals

    def test_returns_lanes_on_request(self) -> None:
        lanes = Lanes(
            tuple(Lane(start_ns=REPORT.origin_ns, end_ns=REPORT.origin_ns) for _ in REPORT.gpus)
        )
        body = json.dumps(encode_report_with_lanes(ReportWithLanes(REPORT, lanes))).encode()
        with answering(body, at="/api/v1/report/lanes") as address:
            reported = fetch_report_with_lanes({"address": address})

        assert reported.lanes == Lanes((Lane(),))

    def test_refuses_a_daemon_that_is_too_old_for_lanes(self) -> None:
        with (
            answering(b"Nothing here: try /\n", 404) as address,
            pytest.raises(NoDaemonError, match="older than this gpumon"),
        ):
            fetch_report_with_lanes({"address": address}, run="train")

    @pytest.mark.parametrize(
        ("address", "text"),
        [
            (None, "--listen"),
            ("127.0.0.1:9", "refused"),
            ("ftp://127.0.0.1:9", "not an http"),
            ("no such host:x", "port"),
        ],
    )
    def test_says_why_no_daemon_answers(self, address: str | None, text: str) -> None:
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
            (b" " * ((1 << 20) + 1), 200, "sends more than 1 MiB"),
        ],
    )
    def test_refuses_an_answer_that_is_no_report(
        self, body: bytes, status: int, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(daemon, "_MAX_REPORT_BYTES", 1 << 20)

        with serving(body, status) as address, pytest.raises(NoDaemonError, match=text):
            fetch_report({"address": address})

    @pytest.mark.parametrize(
        ("first", "drop"),
        [
            pytest.param(b"", b"H", id="first line"),
            pytest.param(b"HTTP/1.0 200 OK\r\n", b"x", id="headers"),
            pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n{", b" ", id="body"),
            pytest.param(b"", b"", id="nothing"),
        ],
    )
    def test_gives_up_an_answer_that_comes_byte_by_byte(
        self, first: bytes, drop: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(daemon, "_PATIENCE_S", 0.2)

        with (
            dripping(first, drop) as address,
            pytest.raises(NoDaemonError, match=r"no complete answer within 0\.2 s"),
        ):
            fetch_report({"address": address})

    def test_gives_up_an_answer_that_is_reset_when_its_time_is_over(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        is_over = threading.Event()
        monkeypatch.setattr(daemon, "_PATIENCE_S", 0.2)
        monkeypatch.setattr(daemon, "_shut_down", lambda _: is_over.set())

        with (
            dripping(b"", b"H", is_over) as address,
            pytest.raises(NoDaemonError, match=r"no complete answer within 0\.2 s"),
        ):
            fetch_report({"address": address})

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_follows_no_redirect(self, status: int) -> None:
        with redirecting("", 200) as (elsewhere, paths):
            other = f"http://{elsewhere}/api/v1/report"
            with (
                redirecting(other, status) as (first, _),
                pytest.raises(NoDaemonError, match=f"redirects to {re.escape(other)}, which"),
            ):
                fetch_report({"address": first})

        assert paths == []

    def test_shortens_a_long_redirect(self) -> None:
        with (
            redirecting("x" * 9_000, 302) as (address, _),
            pytest.raises(NoDaemonError, match="x" * 150) as raised,
        ):
            fetch_report({"address": address})
        assert len(str(raised.value)) < 500

    @pytest.mark.parametrize(
        ("requested", "status", "text"),
        [
            ({"since_s": 1e308}, 400, "since=1e308 must be ..."),
            ({"run": "x y/z"}, 404, "no run is called 'x' here; the runs here: train and eval"),
            ({"run": "\udcff"}, 404, "no run is called that"),
        ],
    )
    def test_passes_on_the_daemons_refusal_of_a_time_or_run(
        self, requested: dict[str, Any], status: int, text: str
    ) -> None:
        with serving(f"{text}\n".encode(), status) as address, pytest.raises(UsageError) as raised:
            fetch_report({"address": address}, **requested)

        assert str(raised.value) == text


class TestASilentDaemon:
    """It has its folder locked, and its state is stale."""

    @pytest.mark.parametrize("mode", [0o700, 0o755])
    def test_is_found_by_its_lock(self, tmp_path: Path, mode: int) -> None:
        tmp_path.chmod(mode)
        held = LockedFolder(environ_of(tmp_path))
        state_file(tmp_path, pid=os.getpid())

        silent = find_silent_daemon(environ_of(tmp_path), now_ns=s(1005))

        held.close()
        assert silent == SilentDaemon(os.getpid(), s(5))
        assert find_silent_daemon(environ_of(tmp_path), now_ns=s(1005)) is None, "no lock"

    @pytest.mark.parametrize(
        ("now_s", "state"),
        [
            pytest.param(1001, {"pid": os.getpid()}, id="with a fresh state"),
            pytest.param(1005, {"pid": os.getpid(), "period_ns": s(10)}, id="with a long period"),
            pytest.param(1005, {"pid": os.getpid() + 1}, id="with another's state"),
            pytest.param(500, {"pid": os.getpid()}, id="with a state from before a reboot"),
            pytest.param(1005, {"pid": None}, id="without a pid"),
        ],
    )
    def test_is_no_daemon(self, folder: Path, now_s: int, state: dict[str, object]) -> None:
        state_file(folder, **state)

        assert find_silent_daemon(environ_of(folder), now_ns=s(now_s)) is None


def sentence_of(path: Path) -> str | None:
    """Return the refusal of that state file; ``None``: reading it did not end within 5 s."""
    reported: list[str] = []

    def read() -> None:
        with pytest.raises(NoDaemonError, match="cannot be") as raised:
            read_state(path, HandClock(), BOOT)
        reported.append(str(raised.value))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(5)
    return reported[0] if reported else None


class TestAStateFile:
    @pytest.mark.parametrize("period_s", [1, 10])
    def test_is_fresh_for_three_periods(self, tmp_path: Path, period_s: int) -> None:
        path = state_file(tmp_path, period_ns=s(period_s))
        late_ns = s(1000 + 3 * period_s)

        assert find_state_file(environ_of(tmp_path), now_ns=late_ns) == path
        assert find_state_file(environ_of(tmp_path), now_ns=late_ns + 1) is None
        assert read_state(path, HandClock(999.9 + 3 * period_s), BOOT)["address"] == "x:1"

    @pytest.mark.parametrize(
        ("now_s", "boot", "text"), [(1060.0, BOOT, " 60 s"), (1000.5, "another", "last reboot")]
    )
    def test_that_is_stale_is_refused(
        self, tmp_path: Path, now_s: float, boot: str, text: str
    ) -> None:
        with pytest.raises(NoDaemonError, match=text):
            read_state(state_file(tmp_path), HandClock(now_s), boot)

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", '{"monotonic_ns": "x"}', "[" * 200_000], ids=range(6)
    )
    def test_that_is_invalid_is_refused(self, folder: Path, text: str) -> None:
        (folder / "state.json").write_text(text)

        assert find_state_file(environ_of(folder), now_ns=s(1)) is None
        assert find_silent_daemon(environ_of(folder), now_ns=s(1005)) is None
        assert sentence_of(folder / "state.json") is not None

    def test_that_is_a_link_is_refused(self, folder: Path, tmp_path: Path) -> None:
        (folder / "state.json").symlink_to(state_file(tmp_path))

        assert find_state_file(environ_of(folder), now_ns=s(1000)) is None
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

    @as_root
    def test_of_another_user_is_not_believed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Any user can create ``/tmp/gpumon-7`` before user 7 does."""
        monkeypatch.setattr(os, "geteuid", lambda: 54_323)
        folder = Path("/tmp/gpumon-54323")
        folder.mkdir(mode=0o755)
        try:
            state = {"monotonic_ns": time.monotonic_ns(), "period_ns": 3600 * NS_PER_S}
            (folder / "state.json").write_text(json.dumps(state))
            found = []
            for owner in (54_323, OTHER_UID):
                os.chown(folder, owner, -1)
                found.append(find_state_file({"XDG_RUNTIME_DIR": "/nowhere"}))
        finally:
            shutil.rmtree(folder)

        if found[0] is not None and not found[0].is_relative_to(folder):
            pytest.skip(f"a real daemon of this machine comes first: {found[0]}")
        assert found == [folder / "state.json", None]

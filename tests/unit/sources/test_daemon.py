"""Specification of asking a daemon: its report, or one sentence that says what to start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.documents.report_codec import encode_report
from gpumon.core.phase import IdleCause
from gpumon.errors import NoDaemonError, UsageError
from gpumon.sources.daemon import (
    SilentDaemon,
    fetch_report,
    find_silent_daemon,
    find_state_file,
    read_state,
)
from gpumon.sources.rings.daemon_folder import HeldFolder
from tests.builders_clock import HandClock
from tests.builders_report import gpu, report
from tests.builders_time import s
from tests.neighbours import NOBODY, as_root, become, shared_runtime_folder

BOOT = "b00t"
REPORT = report(gpu(40, {IdleCause.INPUT_WAIT: 20}))


def state_file(folder: Path, **changes: object) -> Path:
    state = {"monotonic_ns": s(1000), "period_ns": s(1), "boot_id": BOOT, "address": "x:1"}
    path = folder / "state.json"
    path.write_text(json.dumps({**state, **changes}), encoding="utf-8")
    return path


@contextmanager
def serving(body: bytes, status: int = 200) -> Iterator[str]:
    """A server on a free loopback port that always answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/api/v1/report" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            del format, args

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sentence_of(path: Path) -> str | None:
    """What reading that state is refused with; ``None``: it was still waiting after 5 s."""
    told: list[str] = []

    def read() -> None:
        with pytest.raises(NoDaemonError, match="cannot be read") as raised:
            read_state(path, HandClock(), BOOT)
        told.append(str(raised.value))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(5)
    return told[0] if told else None


class TestADaemonThatRuns:
    def test_is_found_by_its_fresh_state(self, tmp_path: Path) -> None:
        state = read_state(state_file(tmp_path), HandClock(1002.9), BOOT)

        assert state["address"] == "x:1"

    def test_may_be_three_of_its_own_periods_late(self, tmp_path: Path) -> None:
        path = state_file(tmp_path, period_ns=s(10))

        assert read_state(path, HandClock(1029.0), BOOT)["period_ns"] == s(10)

    @pytest.mark.parametrize("scheme", ["", "http://"])
    def test_tells_its_report(self, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        with serving(json.dumps(encode_report(REPORT)).encode()) as address:
            found = fetch_report({"address": scheme + address})

        assert found.gpus[0].totals == REPORT.gpus[0].totals


class TestOneSentenceComes:
    def test_without_a_state_file(self) -> None:
        with pytest.raises(NoDaemonError, match="start one with `gpumon serve`") as raised:
            read_state(None, HandClock(), BOOT)

        assert raised.value.exit_code == 4

    def test_after_the_daemon_has_stopped(self, tmp_path: Path) -> None:
        with pytest.raises(NoDaemonError, match=r"last spoke 60 s ago; start one"):
            read_state(state_file(tmp_path), HandClock(1060.0), BOOT)

    def test_after_a_reboot(self, tmp_path: Path) -> None:
        with pytest.raises(NoDaemonError, match="before this machine was rebooted"):
            read_state(state_file(tmp_path), HandClock(1000.5), "another")

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"monotonic_ns": "x"}'])
    def test_for_a_state_that_is_damaged(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "state.json"
        path.write_text(text)

        with pytest.raises(NoDaemonError, match="cannot be read"):
            read_state(path, HandClock(), BOOT)

    def test_for_a_state_nested_beyond_all_measure(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        path.write_text("[" * 200_000)

        with pytest.raises(NoDaemonError, match="cannot be read"):
            read_state(path, HandClock(), BOOT)

    @pytest.mark.parametrize("is_held_open", [False, True])
    def test_at_once_for_a_fifo_put_in_its_place(self, tmp_path: Path, is_held_open: bool) -> None:
        path = tmp_path / "state.json"
        os.mkfifo(path)
        held = os.open(path, os.O_RDWR) if is_held_open else None
        try:
            assert sentence_of(path) is not None
        finally:
            if held is not None:
                os.close(held)

    def test_for_a_link_put_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        path = tmp_path / "state.json"
        path.symlink_to(state_file(tmp_path / "elsewhere"))

        with pytest.raises(NoDaemonError, match="cannot be read"):
            read_state(path, HandClock(1002.9), BOOT)

    def test_for_a_daemon_without_a_page(self) -> None:
        with pytest.raises(NoDaemonError, match="serves no report"):
            fetch_report({"address": None})

    @pytest.mark.parametrize("address", ["127.0.0.1:9", "ftp://127.0.0.1:9", "no such host:x"])
    def test_for_an_address_where_nobody_answers(self, address: str) -> None:
        with pytest.raises(NoDaemonError, match="does not answer at"):
            fetch_report({"address": address})

    @pytest.mark.parametrize(
        ("body", "status"), [(b"", 503), (b"<html>", 200), (b'{"schema": "other/1"}', 200)]
    )
    def test_for_an_answer_that_is_no_report(self, body: bytes, status: int) -> None:
        with serving(body, status) as address, pytest.raises(NoDaemonError):
            fetch_report({"address": address})

    @pytest.mark.parametrize("status", [401, 403])
    def test_for_an_address_beyond_loopback_which_says_what_to_start(self, status: int) -> None:
        with (
            serving(b"no\n", status) as address,
            pytest.raises(NoDaemonError, match=r"--listen 127\.0\.0\.1:19835 as well"),
        ):
            fetch_report({"address": address})

    def test_for_a_stranger_who_knows_no_report(self) -> None:
        with serving(b"not found\n", 404) as address, pytest.raises(NoDaemonError):
            fetch_report({"address": address})


class TestATimeThatIsNone:
    def test_is_refused_in_the_daemons_own_words(self) -> None:
        with (
            serving(b"since=1e308 must be ...\n", 400) as address,
            pytest.raises(UsageError, match="since=1e308 must be"),
        ):
            fetch_report({"address": address}, since_s=1e308)


class TestARunThatIsNone:
    def test_is_refused_in_the_daemons_own_words(self) -> None:
        body = b"no run is called 'x' here; the runs here: train and eval\n"

        with serving(body) as address, pytest.raises(UsageError) as raised:
            fetch_report({"address": address}, run="x y/z")

        assert str(raised.value) == "no run is called 'x' here; the runs here: train and eval"

    def test_may_have_a_name_that_is_no_text(self) -> None:
        with serving(b"no run is called that\n", 404) as address, pytest.raises(UsageError):
            fetch_report({"address": address}, run="\udcff")


class TestADaemonThatIsSilent:
    """It lives, for it holds its folder; and it renews nothing."""

    @pytest.mark.parametrize("mode", [0o700, 0o755])
    def test_is_found_by_the_folder_that_it_holds(self, tmp_path: Path, mode: int) -> None:
        tmp_path.chmod(mode)
        held = HeldFolder(said(tmp_path))
        state_file(tmp_path, pid=os.getpid())

        silent = find_silent_daemon(said(tmp_path), now_ns=s(1005))

        held.close()
        assert silent == SilentDaemon(os.getpid(), s(5))
        assert silent.claim == (
            f"the gpumon daemon (pid {os.getpid()}) has not spoken for 5 s: it is stopped or "
            "held up"
        )

    @as_root
    def test_is_found_by_every_other_user(self) -> None:
        with shared_runtime_folder() as folder:
            held = HeldFolder(said(folder))
            state_file(folder, pid=os.getpid())
            program = become(imports="gpumon.sources.daemon") + (
                f"print(gpumon.sources.daemon.find_silent_daemon({said(folder)!r}, "
                f"now_ns={s(1005)}))"
            )
            told = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=False
            )
            held.close()

        assert told.stdout == f"SilentDaemon(pid={os.getpid()}, silent_ns={s(5)})\n", told.stderr

    @pytest.mark.parametrize(
        ("more_s", "pid"),
        [(1, 0), (5, 1), (-500, 0)],
        ids=["that speaks", "that took the folder of a dead one", "from before a reboot"],
    )
    def test_is_none(self, tmp_path: Path, more_s: int, pid: int) -> None:
        held = HeldFolder(said(tmp_path))
        state_file(tmp_path, pid=os.getpid() + pid)

        silent = find_silent_daemon(said(tmp_path), now_ns=s(1000 + more_s))

        held.close()
        assert silent is None

    def test_is_none_that_speaks_every_ten_seconds(self, tmp_path: Path) -> None:
        held = HeldFolder(said(tmp_path))
        state_file(tmp_path, pid=os.getpid(), period_ns=s(10))

        silent = find_silent_daemon(said(tmp_path), now_ns=s(1005))

        held.close()
        assert silent is None

    def test_is_none_that_died_though_another_process_has_its_pid(self, tmp_path: Path) -> None:
        state_file(tmp_path, pid=os.getpid())

        assert find_silent_daemon(said(tmp_path), now_ns=s(1005)) is None

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": null, "monotonic_ns": "x"}'])
    def test_is_none_where_the_state_is_damaged(self, tmp_path: Path, text: str) -> None:
        held = HeldFolder(said(tmp_path))
        (tmp_path / "state.json").write_text(text)

        silent = find_silent_daemon(said(tmp_path), now_ns=s(1005))

        held.close()
        assert silent is None


def said(folder: Path) -> dict[str, str]:
    return {"GPUMON_RUNTIME_DIR": str(folder)}


class TestAStateFile:
    def write(self, folder: Path, taken_ns: object, period_ns: object = NS_PER_S) -> Path:
        path = folder / "state.json"
        path.write_text(json.dumps({"monotonic_ns": taken_ns, "period_ns": period_ns}))
        return path

    def test_is_found_while_it_is_fresh(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, 100 * NS_PER_S)

        assert find_state_file(said(tmp_path), now_ns=103 * NS_PER_S) == path
        assert find_state_file(said(tmp_path), now_ns=103 * NS_PER_S + 1) is None

    def test_stays_fresh_for_three_periods(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, 100 * NS_PER_S, 10 * NS_PER_S)

        assert find_state_file(said(tmp_path), now_ns=130 * NS_PER_S) == path

    def test_of_an_earlier_boot_is_not_fresh(self, tmp_path: Path) -> None:
        self.write(tmp_path, 10_000 * NS_PER_S)

        assert find_state_file(said(tmp_path), now_ns=5 * NS_PER_S) is None

    @pytest.mark.parametrize("body", ["", "[]", "{", "[" * 100_000, '{"monotonic_ns": "x"}'])
    def test_that_is_nonsense_is_none(self, tmp_path: Path, body: str) -> None:
        (tmp_path / "state.json").write_text(body)

        assert find_state_file(said(tmp_path), now_ns=NS_PER_S) is None

    def test_that_is_a_link_or_a_pipe_is_none(self, tmp_path: Path) -> None:
        real = self.write(tmp_path, 1)
        link, pipe = tmp_path / "link", tmp_path / "pipe"
        link.mkdir()
        pipe.mkdir()
        (link / "state.json").symlink_to(real)
        os.mkfifo(pipe / "state.json")

        assert find_state_file(said(link), now_ns=1) is None
        assert find_state_file(said(pipe), now_ns=1) is None

    def test_need_not_exist(self, tmp_path: Path) -> None:
        assert find_state_file(said(tmp_path / "nowhere")) is None


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
        os.chown(made, NOBODY, -1)

        if own is not None and not own.is_relative_to(made):
            pytest.skip(f"a real daemon of this machine comes first: {own}")
        assert own == made / "state.json"
        assert self.found() is None

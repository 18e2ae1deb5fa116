"""Tests of where ``gpumon top`` has its views from."""

from __future__ import annotations

import getpass
import os
import queue
import threading
from pathlib import Path

import pytest

from gpumon.cli.view_feeds import DaemonFeed, LocalNames, WatchFeed
from gpumon.core.view.view import HolderView, ProcessView
from gpumon.errors import NoDaemonError, SourceUnavailableError
from gpumon.outlets.screen.one_screen import Screenful
from gpumon.sources.daemon_view import DaemonAddress
from tests.builders.state import monitor_state
from tests.builders.time import s
from tests.builders.view import gpu_view, view
from tests.processes import with_pids_of_the_host
from tests.serving import serving
from tests.waiting import PATIENCE_S

OWN_PID = os.getpid()


class TestNamesOfProcesses:
    @with_pids_of_the_host
    def test_are_filled_in_where_the_daemon_leaves_them_out(self) -> None:
        process = ProcessView(OWN_PID, None, None, 1 << 30, 0.5)
        held = HolderView(OWN_PID, None, None, 1 << 30, None)
        gpu = gpu_view("0", processes=(process,), held_by=held, user=None)
        (filled,) = LocalNames().filled(view(gpu)).gpus

        assert filled.user == getpass.getuser()
        assert filled.processes is not None
        assert filled.processes[0].user == filled.user
        assert filled.processes[0].command
        assert filled.held_by is not None
        assert filled.held_by.user == filled.user

    def test_that_the_daemon_gives_stay(self) -> None:
        gpu = gpu_view("0", processes=(ProcessView(OWN_PID, "ada", "train", 1, 0.5),), user="ada")

        assert LocalNames().filled(view(gpu)).gpus == (gpu,)

    def test_of_a_process_that_is_gone_stay_unknown(self) -> None:
        gpu = gpu_view("0", processes=(ProcessView(2**22 + 9, None, None, 1, 0.5),), user=None)

        assert LocalNames().filled(view(gpu)).gpus == (gpu,)


class TestADaemon:
    def test_is_followed_and_found_again(self) -> None:
        received: queue.Queue[Screenful] = queue.Queue()
        addresses: list[DaemonAddress | None] = []
        feed = DaemonFeed(lambda: addresses[-1])
        with serving(monitor_state()) as server:
            addresses.append(DaemonAddress(server.address))
            first = feed.first()
            assert first.origin == f"daemon at {server.address}"
            feed.follow(received.put)
            assert received.get(timeout=PATIENCE_S).trouble == ""
        addresses.append(None)
        gone = received.get(timeout=PATIENCE_S)
        assert gone.trouble
        assert gone.trouble_since_s
        assert gone.view is not None
        with serving(monitor_state(taken_at_ns=s(2_000))) as server:
            addresses.append(DaemonAddress(server.address))
            shown = gone
            while shown.trouble:
                assert shown.trouble_since_s == gone.trouble_since_s
                shown = received.get(timeout=PATIENCE_S)
            assert shown.origin == f"daemon at {server.address}"
            feed.close()

    def test_that_is_not_there_is_an_error(self) -> None:
        with pytest.raises(NoDaemonError):
            DaemonFeed(lambda: None).first()

    def test_with_simulated_gpus_has_no_process_of_this_machine(self) -> None:
        with serving(monitor_state()) as server:
            assert not DaemonFeed(lambda: DaemonAddress(server.address)).first().is_local


class TestAnOwnWatch:
    def test_gives_each_tick(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
        received: queue.Queue[Screenful] = queue.Queue()
        feed = WatchFeed("simulated:eight", 0.05)
        assert feed.first().view is None
        first = feed.first(2)
        feed.follow(received.put)
        later = received.get(timeout=PATIENCE_S)
        feed.close()

        assert first.view is not None
        assert later.view is not None
        assert later.view.monotonic_seconds > first.view.monotonic_seconds
        assert len(later.view.gpus) == 8
        assert later.origin == "watching simulated:eight in this process"


def test_one_screen_waits_for_the_first_tick_of_a_daemon() -> None:
    with serving() as server:
        threading.Timer(0.3, server.publish, [monitor_state()]).start()
        feed = DaemonFeed(lambda: DaemonAddress(server.address))

        assert feed.first().view is None
        assert feed.first(1).view is not None


def test_an_own_watch_ends_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SourceUnavailableError("libnvidia-ml.so.1 was not found")

    monkeypatch.setattr("gpumon.cli.source_option.open_source", refuse)
    received: queue.Queue[Screenful] = queue.Queue()
    feed = WatchFeed("nvml", 1.0, is_fallback=True)
    feed.follow(received.put)
    error = received.get(timeout=PATIENCE_S).error
    feed.close()

    assert isinstance(error, SourceUnavailableError)
    assert str(error) == (
        "no gpumon daemon runs here, and libnvidia-ml.so.1 was not found; to see this screen "
        "without a GPU, try `gpumon top --source simulated:eight`"
    )

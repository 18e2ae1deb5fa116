"""A report and the page's history go back beyond the daemon's start, even if that was killed."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import FollowingDaemon, RunningDaemon
from tests.needs import in_make_truth
from tests.waiting import wait_until
from trainer_hooks.examples.busy_spans import BusySpans

SOURCE = ("--source", "simulated:input-bound", "--period", "0.5")
STORE = "store.sqlite3"
MOST_LOST_S = 10.0
WATCHED_S = 12.0
NOT_RUNNING_S = 2.0


def store_of(folder: Path) -> Path:
    return folder / "state" / "gpumon" / STORE


def observed(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By GPU: the observed time, and its parts."""
    return {
        gpu["uuid"]: {
            "observed": gpu["observed_seconds"],
            "busy": gpu["busy_seconds"],
            "pending": gpu["pending_seconds"],
            **gpu["idle_by_cause"],
        }
        for gpu in report["gpus"]
    }


def since(daemon: RunningDaemon, seconds: float = 3600.0) -> dict[str, Any]:
    status, body = daemon.get(f"/api/v1/report?since={seconds}")
    assert status == 200, body
    document: dict[str, Any] = json.loads(body)
    return document


def history(daemon: RunningDaemon, from_s: float, to_s: float) -> dict[str, Any]:
    status, body = daemon.get(f"/api/v1/history?from={from_s}&to={to_s}")
    assert status == 200, body
    document: dict[str, Any] = json.loads(body)
    return document


def watch_for(daemon: RunningDaemon, seconds: float) -> dict[str, Any]:
    wait_until(lambda: daemon.report()["gpus"][0]["observed_seconds"] >= seconds, 60.0)
    return daemon.report()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with RunningDaemon(tmp_path_factory.mktemp("spans"), *SOURCE) as daemon:
        watch_for(daemon, 1.0)
        yield daemon


class TestAfterARestart:
    def test_a_report_counts_the_time_before(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            watch_for(daemon, 6.0)
        ended_s = time.time()
        time.sleep(NOT_RUNNING_S)
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            own = observed(watch_for(daemon, 2.0))
            report = since(daemon)
            metrics = daemon.metrics()
            answer = history(daemon, ended_s - 60, time.time())

        whole = observed(report)
        for uuid, parts in whole.items():
            assert parts["observed"] >= own[uuid]["observed"] + 5.0
            rest = sum(parts.values()) - parts["observed"]
            assert rest == pytest.approx(parts["observed"], abs=0.01)
        assert any("gpumon was not running." in note for note in report["notes"])
        assert any("nothing earlier is kept" in note for note in report["notes"])
        counted = metrics['gpumon_gpu_busy_seconds_total{uuid="GPU-simulated-0"}']
        assert counted < whole["GPU-simulated-0"]["busy"] - 1.0  # counters begin at 0
        before_the_first, (from_s, to_s) = answer["not_running"]
        assert before_the_first == [answer["from_s"], answer["kept_from_s"]]
        assert from_s <= ended_s <= to_s
        gpu = answer["gpus"]["GPU-simulated-0"]
        assert sum(gpu["observed"]) == pytest.approx(whole["GPU-simulated-0"]["observed"], abs=3.0)

    def test_a_report_of_the_present_process_is_as_before(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            watch_for(daemon, 4.0)
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            report = watch_for(daemon, 2.0)

        assert report["gpus"][0]["observed_seconds"] < 4.0
        assert not any("not running" in note for note in report["notes"])

    @in_make_truth
    def test_simulated_gpus_of_another_kind_do_not_count(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            watch_for(daemon, 4.0)
        with RunningDaemon(tmp_path, "--source", "simulated:healthy") as daemon:
            watch_for(daemon, 1.0)
            report = since(daemon)

        assert report["gpus"][0]["observed_seconds"] < 4.0

    @in_make_truth
    def test_a_report_in_a_terminal_names_the_gap(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            watch_for(daemon, 2.0)
        time.sleep(NOT_RUNNING_S)
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            watch_for(daemon, 1.0)
            shown = subprocess.run(
                [sys.executable, "-m", "gpumon", "report", "--since", "12h"],
                env=daemon.environ, capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip

        words = " ".join(shown.split())
        assert "Not watched for" in words
        assert "gpumon was not running." in words


class TestAfterAKill:
    def test_at_most_ten_seconds_are_lost_with_their_causes(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            before = observed(watch_for(daemon, WATCHED_S))
            daemon.process.kill()
            daemon.process.wait(10)
        daemon.state_file.unlink()
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            own = observed(watch_for(daemon, 1.0))
            whole = observed(since(daemon))

        for uuid, parts in before.items():
            for part, seconds in parts.items():
                kept = whole[uuid].get(part, 0.0) - own[uuid].get(part, 0.0)
                assert kept >= seconds - MOST_LOST_S, (uuid, part)
            kept = whole[uuid]["observed"]
            assert kept >= parts["observed"] - MOST_LOST_S + own[uuid]["observed"]

    @in_make_truth
    def test_what_was_pending_of_a_followed_file_is_too(self, tmp_path: Path) -> None:
        with FollowingDaemon(tmp_path) as daemon, BusySpans(daemon.spans) as spans:
            spans.sleep(3.0)
            wait_until(lambda: daemon.report()["gpus"][0]["pending_seconds"] > WATCHED_S, 60.0)
            pending_s = daemon.report()["gpus"][0]["pending_seconds"]
            daemon.process.kill()
            daemon.process.wait(10)
        with closing(sqlite3.connect(store_of(tmp_path))) as database:
            (pending_ms,) = database.execute("SELECT sum(pending) FROM minutes").fetchone()

        assert pending_ms / 1000 >= pending_s - MOST_LOST_S


class TestTheStore:
    def test_is_for_its_owner_alone_and_is_named_at_the_start(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            log = daemon.log()
            path = store_of(tmp_path)
            modes = [stat.S_IMODE(one.stat().st_mode) for one in (path.parent, path)]

        assert f"store    {path}" in log
        assert modes == [0o700, 0o600]

    def test_is_in_the_state_folder_of_a_service(self, tmp_path: Path) -> None:
        folder = tmp_path / "lib"
        with RunningDaemon(tmp_path, *SOURCE, environ={"STATE_DIRECTORY": str(folder)}):
            assert (folder / STORE).exists()

    def test_is_none_if_none_is_wanted_and_ten_minutes_are_in_memory(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, *SOURCE, "--no-store") as daemon:
            watch_for(daemon, 2.0)
            now_s = time.time()
            answer = history(daemon, now_s - 60, now_s)
            metrics = daemon.metrics()
            log = daemon.log()

        assert not store_of(tmp_path).parent.exists()
        assert sum(answer["gpus"]["GPU-simulated-0"]["observed"]) >= 1.5
        assert 'gpumon_collector_success{collector="store"}' not in metrics
        assert "store    none" in log

    def test_keeps_nothing_of_a_recording(self, tmp_path: Path) -> None:
        recording = tmp_path / "night.gpumon"
        subprocess.run(
            [sys.executable, "-m", "gpumon", "record", str(recording), "--for", "3s",
             "--source", "simulated:input-bound"],
            check=True, capture_output=True, cwd=tmp_path,
        )  # fmt: skip
        with RunningDaemon(tmp_path, "--source", f"replay:{recording}") as daemon:
            daemon.report()

        assert not store_of(tmp_path).parent.exists()

    def test_loads_sqlite_with_serve_alone(self) -> None:
        program = (
            "import sys, pkgutil, importlib, gpumon.cli\n"
            "for one in pkgutil.walk_packages(gpumon.cli.__path__, 'gpumon.cli.'):\n"
            "    importlib.import_module(one.name)\n"
            "print('sqlite3' in sys.modules, 'gpumon.outlets.store.store' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )

        assert done.stdout == "False False\n"


class TestABadSpan:
    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            ("from=100&to=50", "ends before it begins"),
            ("from=lunch&to=50", "must be numbers"),
            ("from=0&to=99999999999", "at most 366 days"),
            ("from=50", "A history takes"),
            ("from=50&to=60&to=70", "A history takes"),
            ("from=nan&to=1", "must be numbers"),
        ],
    )
    def test_is_refused_with_one_sentence(
        self, daemon: RunningDaemon, query: str, sentence: str
    ) -> None:
        status, body = daemon.get(f"/api/v1/history?{query}")

        assert status == 400
        assert sentence in body
        assert body.count("\n") == 1

    def test_in_the_future_is_refused(self, daemon: RunningDaemon) -> None:
        now_s = time.time()

        status, body = daemon.get(f"/api/v1/history?from={now_s + 3600}&to={now_s + 7200}")

        assert (status, "future" in body) == (400, True)

    def test_that_reaches_before_what_is_kept_is_answered(self, daemon: RunningDaemon) -> None:
        now_s = time.time()

        answer = history(daemon, now_s - 86_400, now_s)

        assert now_s - 600 < answer["kept_from_s"] <= now_s

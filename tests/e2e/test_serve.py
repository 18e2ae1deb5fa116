"""Specification of ``gpumon serve`` as a process: what a user and a scraper see."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import Shell
from tests.daemon import RunningDaemon
from tests.needs import without_driver
from tests.patience import wait_until
from tests.programs import gpumon as ran_gpumon

PAUSE_NS = 1_500_000_000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon on the input-bound script that has been up for a while."""
    folder = tmp_path_factory.mktemp("serve")
    with RunningDaemon(folder, "--source", "simulated:input-bound", "--period", "0.5") as running:
        running.wait_for(lambda state: state["gpus"][0]["suspected_ns"] > 0, patience_s=60)
        yield running


def _verdict_of_gpu_0(daemon: RunningDaemon) -> str:
    return str(daemon.report()["gpus"][0]["verdict"])


class TestTheStateFile:
    def test_is_renewed_each_tick(self, daemon: RunningDaemon) -> None:
        before = daemon.state()["monotonic_ns"]

        after = daemon.wait_for(lambda state: state["monotonic_ns"] > before, patience_s=5)
        last = daemon.wait_for(
            lambda state: state["monotonic_ns"] > after["monotonic_ns"], patience_s=5
        )

        assert last["gpus"][0]["observed_ns"] > after["gpus"][0]["observed_ns"]


class TestASecondDaemon:
    def test_in_the_same_folder_is_refused_by_name(self, daemon: RunningDaemon) -> None:
        words = ("serve", "--source", "simulated:flat", "--listen", "127.0.0.1:0")
        second = ran_gpumon(*words, environ=daemon.environ)

        assert second.returncode == 1
        assert f"pid {daemon.process.pid}" in second.stderr
        assert "GPUMON_RUNTIME_DIR" in second.stderr

    def test_may_follow_the_first(self, tmp_path: Path) -> None:
        for _ in range(2):
            with RunningDaemon(tmp_path, "--source", "simulated:flat") as running:
                assert running.state()["pid"] == running.process.pid


class TestTheMetrics:
    def test_count_the_starved_gpu_and_not_the_healthy_one(self, daemon: RunningDaemon) -> None:
        metrics = daemon.metrics()

        starved = metrics['gpumon_gpu_suspected_seconds_total{uuid="GPU-simulated-0"}']
        assert starved > 3.0
        assert metrics['gpumon_gpu_suspected_seconds_total{uuid="GPU-simulated-1"}'] == 0.0


class TestTheReport:
    def test_suspects_starvation_with_about_half_the_time_lost(self, daemon: RunningDaemon) -> None:
        daemon.wait_for(
            lambda state: state["gpus"][0]["suspected_ns"] > 10.5 * PAUSE_NS, patience_s=60
        )
        wait_until(lambda: _verdict_of_gpu_0(daemon) == "starvation_suspected", patience_s=60)
        gpu = daemon.report()["gpus"][0]

        assert gpu["pauses"]["count"] >= 5
        assert gpu["busy_ratio"] == pytest.approx(0.5, abs=0.12)
        assert gpu["gaps"]["p50_seconds"] == pytest.approx(1.5, abs=0.05)

    def test_closes_to_a_microsecond(self, daemon: RunningDaemon) -> None:
        gpus = daemon.report()["gpus"]

        assert len(gpus) == len(daemon.state()["gpus"]) == 2
        for gpu in gpus:
            parts_s = gpu["busy_seconds"] + sum(gpu["idle_by_cause"].values())
            assert parts_s + gpu["pending_seconds"] == pytest.approx(
                gpu["observed_seconds"], abs=1e-6
            )

    def test_is_what_the_command_prints(self, daemon: RunningDaemon) -> None:
        # On a busy machine some samples are late, and the suspicion takes longer.
        wait_until(lambda: _verdict_of_gpu_0(daemon) == "starvation_suspected", patience_s=90)
        printed = ran_gpumon("report", environ=daemon.environ)

        assert printed.returncode == 0
        assert printed.stdout.startswith("Verdict: Starvation ")
        for gpu in (0, 1):
            assert f"GPU {gpu} " in printed.stdout

    def test_comes_with_what_every_gpu_did_when(self, daemon: RunningDaemon) -> None:
        daemon.wait_for(lambda state: state["gpus"][1]["busy_ns"] > 2 * PAUSE_NS, patience_s=40)
        status, body = daemon.get("/api/v1/report/lanes?since=3600")
        reported = json.loads(body)

        assert status == 200
        for gpu, lane in zip(reported["gpus"], reported["lanes"]["gpus"], strict=True):
            assert sum(lane["busy_ns"]) / 1e9 == pytest.approx(gpu["busy_seconds"], abs=0.1)

    def test_of_the_last_hour_has_a_note_that_it_is_of_less(self, daemon: RunningDaemon) -> None:
        asked = ran_gpumon("report", "--since", "1h", "--json", environ=daemon.environ)
        document = json.loads(asked.stdout)
        status, body = daemon.get("/api/v1/report?since=lunch")

        assert asked.returncode == 0
        assert document["gpus"][0]["observed_seconds"] < 3600
        assert any("nothing earlier is kept" in note for note in document["notes"])
        assert (status, "since=3600" in body) == (400, True)

    def test_fails_a_build_that_starves(self, daemon: RunningDaemon) -> None:
        daemon.wait_for(
            lambda state: state["gpus"][0]["suspected_ns"] > 10.5 * PAUSE_NS, patience_s=60
        )
        words = ("report", "--json", "--fail-if-starved-above", "5")
        printed = ran_gpumon(*words, environ=daemon.environ)

        assert printed.returncode == 1
        assert json.loads(printed.stdout)["schema"] == "gpumon.report/1"
        assert "GPU 0" in printed.stderr


class TestWrongWords:
    def test_a_folder_that_does_not_exist_ends_with_three(
        self, gpumon: Shell, tmp_path: Path
    ) -> None:
        ended = gpumon("serve", "--listen", "127.0.0.1:0", "--source", f"follow:{tmp_path}/no/f")

        assert (ended.code, ended.is_refused_in_a_sentence) == (3, True)
        assert f"{tmp_path}/no" in ended.err


class TestAFullDisk:
    def test_behind_the_output_is_one_sentence(self, daemon: RunningDaemon) -> None:
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "gpumon", "report"],
                env=daemon.environ, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                check=False,
            )  # fmt: skip

        assert ended.returncode == 1
        assert ended.stderr == f"gpumon: {os.strerror(errno.ENOSPC)}\n"


class TestAGateWithNothingToDiagnose:
    @pytest.mark.parametrize("option", ["--fail-if-starved-above", "--fail-if-lost-above"])
    def test_ends_with_a_code_of_its_own(self, tmp_path: Path, option: str) -> None:
        with RunningDaemon(tmp_path, "--wait-for-source", environ=without_driver()) as waiting:
            ended = ran_gpumon("report", option, "5", environ=waiting.environ)

        assert ended.returncode == 5
        assert ended.stderr.startswith("gpumon: no verdict: ")
        assert "libnvidia-ml.so.1" in " ".join(ended.stdout.split())


class TestDoctor:
    def test_says_field_by_field_what_a_gpu_reports(self, gpumon: Shell) -> None:
        seen = gpumon("doctor", "--source", "simulated:healthy", "--json")

        names = {finding["name"] for finding in seen.document["findings"]}
        assert seen.code == 0
        assert {"gpu source", "gpu 0 utilisation", "gpu 1 memory", "daemon"} <= names


class TestADaemonThatIsStopped:
    def test_is_reported_as_such_with_what_to_do_and_not_to_start_another(
        self, tmp_path: Path
    ) -> None:
        with RunningDaemon(tmp_path, "--source", "simulated:healthy") as stopped:
            pid = stopped.process.pid
            stopped.process.send_signal(signal.SIGSTOP)
            time.sleep(3.5)

            asked = ran_gpumon("report", environ=stopped.environ)
            looked = ran_gpumon(
                "doctor", "--source", "simulated:healthy", "--json", environ=stopped.environ
            )
            stopped.process.send_signal(signal.SIGCONT)
            stopped.wait_for(lambda state: state["pid"] == pid, patience_s=5)

        (found,) = (one for one in json.loads(looked.stdout)["findings"] if one["name"] == "daemon")
        assert (asked.returncode, asked.stdout) == (4, "")
        for output in (asked.stderr, found["detail"]):
            assert f" daemon (pid {pid}) has not " in output
        assert asked.stderr.endswith(f"; {found['fix']}\n")
        assert "gpumon serve" not in asked.stderr
        assert "by its pid" in found["fix"]

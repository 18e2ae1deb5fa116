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

from tests.daemon import RunningDaemon
from tests.needs import without_driver
from tests.programs import gpumon as ran_gpumon
from tests.training_processes import process
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon on the input-bound script."""
    folder = tmp_path_factory.mktemp("serve")
    with RunningDaemon(folder, "--source", "simulated:input-bound", "--period", "0.5") as running:
        running.wait_for(lambda state: state["gpus"][0]["busy_ns"] > 0)
        yield running


def _verdict_of_gpu_0(daemon: RunningDaemon) -> str:
    return str(daemon.report()["gpus"][0]["verdict"])


class TestASecondDaemon:
    def test_in_the_same_folder_is_refused_by_name(self, daemon: RunningDaemon) -> None:
        words = ("serve", "--source", "simulated:flat", "--listen", "127.0.0.1:0")
        second = ran_gpumon(*words, environ=daemon.environ)

        assert second.returncode == 1
        assert f"pid {daemon.process.pid}" in second.stderr
        assert "GPUMON_RUNTIME_DIR" in second.stderr


class TestTheReport:
    def test_closes_to_a_microsecond(self, daemon: RunningDaemon) -> None:
        gpus = daemon.report()["gpus"]

        assert len(gpus) == len(daemon.state()["gpus"]) == 2
        for gpu in gpus:
            parts_s = gpu["busy_seconds"] + sum(gpu["idle_by_cause"].values())
            assert parts_s + gpu["pending_seconds"] == pytest.approx(
                gpu["observed_seconds"], abs=1e-6
            )

    def test_suspects_starvation_and_fails_a_build(self, daemon: RunningDaemon) -> None:
        wait_until(lambda: _verdict_of_gpu_0(daemon) == "starvation_suspected", patience_s=120)
        words = ("report", "--json", "--fail-if-starved-above", "5")
        printed = ran_gpumon(*words, environ=daemon.environ)
        starved, healthy = json.loads(printed.stdout)["gpus"]
        metrics = daemon.metrics()

        assert printed.returncode == 1
        assert "GPU 0" in printed.stderr
        assert starved["busy_ratio"] == pytest.approx(0.5, abs=0.12)
        assert starved["gaps"]["p50_seconds"] == pytest.approx(1.5, abs=0.05)
        assert starved["suspected_seconds"] > 3.0
        assert healthy["suspected_seconds"] == 0.0
        assert metrics['gpumon_gpu_suspected_seconds_total{uuid="GPU-simulated-1"}'] == 0.0


TRAINING = """
import sys, time
from pathlib import Path
from trainer_hooks import phase, step
from trainer_hooks.examples.busy_spans import BusySpans
with BusySpans(Path(sys.argv[1]), 0) as gpu:
    for _ in range(9):
        with phase(sys.argv[2]):
            time.sleep(0.1)
        with phase("train_step"):
            gpu.sleep(0.1)
        step()
    print("there", flush=True)
    sys.stdin.read()
"""


def test_two_runs_one_after_the_other_are_reported_alone_by_their_names(tmp_path: Path) -> None:
    causes, spans, counted = {"slow": "input_wait", "saves": "checkpoint"}, tmp_path / "spans", []
    # The newest steps of a run are younger than the last tick.
    with RunningDaemon(tmp_path, "--source", f"follow:{spans}", "--period", "1") as daemon:
        for name, cause in causes.items():
            environ = {"GPUMON_RUN": name, "GPUMON_GPUS": "0"}
            with process(TRAINING, daemon.runtime_dir, str(spans), cause, environ=environ):
                counted += [run["steps"] for run in daemon.report()["runs"] if run["run"] == name]
            daemon.settled_report()
        printed = {
            name: ran_gpumon("report", "--json", "--run", name, environ=daemon.environ)
            for name in (*causes, "fast")
        }
        whole_busy_s = daemon.report()["gpus"][0]["busy_seconds"]

    slow, saves = (json.loads(printed[name].stdout) for name in causes)
    assert counted == [9, 9]
    assert [run["run"] for one in (slow, saves) for run in one["runs"]] == ["slow", "saves"]
    (of_slow,), (of_saves,) = slow["gpus"], saves["gpus"]
    for gpu, own, other in ((of_slow, *causes.values()), (of_saves, *[*causes.values()][::-1])):
        assert (gpu["idle_by_cause"][own] > 0.5, gpu["idle_by_cause"][other]) == (True, 0)
        assert gpu["busy_seconds"] > 0.5
    assert of_slow["busy_seconds"] + of_saves["busy_seconds"] == pytest.approx(whole_busy_s)
    assert printed["fast"].returncode == 2
    assert all(name in printed["fast"].stderr for name in printed)


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
    def test_ends_with_a_code_of_its_own(self, tmp_path: Path) -> None:
        with RunningDaemon(tmp_path, "--wait-for-source", environ=without_driver()) as waiting:
            ended = ran_gpumon("report", "--fail-if-lost-above", "5", environ=waiting.environ)

        assert ended.returncode == 5
        assert ended.stderr.startswith("gpumon: no verdict: ")
        assert "libnvidia-ml.so.1" in " ".join(ended.stdout.split())


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

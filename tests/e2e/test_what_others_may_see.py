"""What a daemon and a training run show to other people, and what they need for it."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.daemon import find_state_file
from tests.daemon import RunningDaemon
from tests.other_users import OTHER_UID, as_root, become, shared_runtime_folder
from tests.processes import ending
from tests.programs import ran_python
from tests.training_processes import ROOT, TRAINING, process
from tests.waiting import PATIENCE_S, wait_until

SECRET = "hunter2-on-the-command-line"
EVERYTHING = ("/metrics", "/", "/api/v1/state", "/api/v1/report", "/api/v1/history")
STATUS_OF = """
import sys, urllib.request
print([urllib.request.urlopen(f"http://{sys.argv[1]}{path}", timeout=20).status
       for path in ("/metrics", "/", "/api/v1/report")])
"""
SOCKETS = """
import os, sys
from trainer_hooks import phase, step, timed
for _ in timed(range(20)):
    with phase("train_step"):
        step(samples=1)
kinds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
         if os.path.lexists(f"/proc/self/fd/{fd}")]
print(sum(kind.startswith("socket:") for kind in kinds), any(".ring" in kind for kind in kinds))
"""
SERVE_ONCE = """
import os, sys, threading
from gpumon.cli.main import main
capabilities = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(os.getuid(), int(capabilities["CapEff"], 16), flush=True)
raise SystemExit(main(["serve", "--source", "simulated:healthy", "--listen", "127.0.0.1:0"]))
"""


REPORTED = {"GPUMON_GPUS": "0", "MY_PASSWORD": SECRET, "USER": SECRET, "LOGNAME": SECRET}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with RunningDaemon(folder, "--source", "simulated:healthy", environ=REPORTED) as one:
        one.wait_for(lambda state: state["gpus"])
        yield one


@as_root
class TestAnotherUserOfTheMachine:
    def test_reads_the_page_and_the_report_as_everybody_does(self, daemon: RunningDaemon) -> None:
        code = become(imports="urllib.request") + STATUS_OF
        done = ran_python("-c", code, daemon.address)

        assert done.stdout == "[200, 200, 200]\n", done.stderr

    def test_may_serve_without_any_right(self) -> None:
        with shared_runtime_folder() as folder:
            own = folder / "own"
            own.mkdir(mode=0o700)
            os.chown(own, OTHER_UID, OTHER_UID)
            loaded = "gpumon.cli.serve, gpumon.cli.source_option, pynvml, signal, runpy"
            loaded += ", gpumon.outlets.store.store"
            serving = subprocess.Popen(
                [sys.executable, "-c", become(imports=loaded) + SERVE_ONCE],
                cwd=ROOT, env={**os.environ, "GPUMON_RUNTIME_DIR": str(own)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            with ending(serving) as daemon:
                assert daemon.stdout is not None
                assert daemon.stdout.readline() == f"{OTHER_UID} 0\n"
                wait_until((own / "state.json").exists)
                daemon.terminate()
                daemon.communicate(timeout=PATIENCE_S)

        assert daemon.returncode == 0


class TestAProxyOnTheMachine:
    def test_is_taken_for_the_machine_itself_whatever_it_forwards(
        self, daemon: RunningDaemon
    ) -> None:
        forwarded = {"X-Forwarded-For": "192.0.2.7", "Forwarded": "for=192.0.2.7"}
        request = urllib.request.Request(f"http://{daemon.address}/", headers=forwarded)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.status == 200


class TestWhatIsPublished:
    def test_holds_no_command_line_no_user_name_and_no_environment(
        self, daemon: RunningDaemon
    ) -> None:
        user = re.compile(rf"\b{pwd.getpwuid(os.getuid()).pw_name}\b")
        with process(TRAINING, daemon.runtime_dir, SECRET, environ=REPORTED):
            daemon.wait_for(lambda state: state["runs"])
            printed = {path: daemon.get(path) for path in EVERYTHING}
            printed["the state file"] = (200, daemon.state_file.read_text())

        assert {status for status, _ in printed.values()} == {200}
        assert [path for path, (_, text) in printed.items() if SECRET in text] == []
        # The page's words are gpumon's own.
        assert [path for path in printed if path != "/" and user.search(printed[path][1])] == []


class TestADaemonThatNamesUsers:
    def test_shows_them_in_metrics_alone(self, tmp_path: Path) -> None:
        user = re.escape(pwd.getpwuid(os.getuid()).pw_name)
        source = ("--source", "simulated:healthy", "--users")
        with (
            RunningDaemon(tmp_path, *source, environ=REPORTED) as daemon,
            process(TRAINING, daemon.runtime_dir, environ=REPORTED),
        ):
            daemon.wait_for(lambda state: any(run["gpus"] for run in state["runs"]))
            printed = {path: daemon.get(path)[1] for path in EVERYTHING}

        metrics = printed.pop("/metrics")
        for family in ("gpu_job_info", "gpu_user_info", "user_gpu_busy_seconds_total"):
            assert re.search(rf'^gpumon_{family}{{.*user="{user}"', metrics, re.MULTILINE)
        del printed["/"]  # its words are gpumon's own
        assert [path for path, text in printed.items() if re.search(rf"\b{user}\b", text)] == []


class TestATrainingRun:
    def test_has_a_ring_and_no_socket(self, tmp_path: Path) -> None:
        done = ran_python("-c", SOCKETS, environ={"GPUMON_RUNTIME_DIR": str(tmp_path)})

        assert done.stdout == "0 True\n", done.stderr


class TestAFloodOfWholeRequests:
    def test_is_not_held_back(self, daemon: RunningDaemon) -> None:
        assert {daemon.get("/metrics")[0] for _ in range(300)} == {200}


class TestTheSuperuser:
    @as_root
    def test_looks_into_the_folders_of_all_users(self) -> None:
        folder = Path(f"/tmp/gpumon-{OTHER_UID}")
        folder.mkdir(mode=0o700)
        try:
            os.chown(folder, OTHER_UID, OTHER_UID)
            state = {"monotonic_ns": time.monotonic_ns(), "period_ns": 3600 * NS_PER_S}
            (folder / "state.json").write_text(json.dumps(state))
            found = find_state_file({})
        finally:
            shutil.rmtree(folder)

        assert found is not None  # or that of a daemon of this machine's own, which comes first

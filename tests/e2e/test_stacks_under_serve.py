"""``gpumon serve --stacks`` beside a real training loop without any tag."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.e2e.pty_terminal import on_a_terminal
from tests.hosts_of_dstat import real_host
from tests.other_users import as_root, become
from tests.programs import ROOT, gpumon, ran_python
from tests.waiting import wait_until

LOOP = Path(__file__).with_name("fed_by_a_queue.py")
SECRET = "hunter2"
"""In the name of the loop's folder, in an argument and in its environment."""
EVERYTHING = ("/metrics", "/", "/api/v1/state", "/api/v1/report", "/api/v1/report/lanes",
              "/api/v1/history")  # fmt: skip
SHOWING = {"/", "/api/v1/state", "/api/v1/report", "/api/v1/report/lanes"}
STREAM = "/api/v1/stream"
READ_AS_ANOTHER = """
for path in sys.argv[2:]:
    with urllib.request.urlopen(f"http://{sys.argv[1]}{path}", timeout=30) as answer:
        stream = path.endswith("/stream")
        print(*([next(line for line in answer if line.startswith(b"data: {"))] if stream else
                [answer.read()]))
"""
pytestmark = pytest.mark.slow


@contextmanager
def watched(folder: Path, **environ: str) -> Iterator[RunningDaemon]:
    """A daemon beside the loop, which is over at the end."""
    spans, place = folder / "busy.jsonl", folder / SECRET
    spans.touch()
    place.mkdir()
    process = subprocess.Popen(
        [sys.executable, shutil.copy(LOOP, place), str(spans), f"--key={SECRET}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "WANDB_API_KEY": SECRET, **environ},
        start_new_session=True,
    )
    arguments = ("--source", f"follow:{spans}", "--period", "0.5", "--stacks")
    try:
        with RunningDaemon(folder, *arguments) as daemon:
            yield daemon
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with its worker
        process.wait()


def printed_by(daemon: RunningDaemon) -> dict[str, str]:
    """All that it shows of a process, by where."""
    printed = {path: daemon.get(path)[1] for path in EVERYTHING}
    return printed | {"the state file": daemon.state_file.read_text(), "the log": daemon.log()}


def first_event(daemon: RunningDaemon) -> bytes:
    """The first tick that an open page gets."""
    with urllib.request.urlopen(f"http://{daemon.address}{STREAM}", timeout=30) as stream:
        lines: Iterator[bytes] = iter(stream)
        return next(line for line in lines if line.startswith(b"data: {"))


def gpu_of(daemon: RunningDaemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.report()["gpus"][0]
    return found


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One that has seen what the loop waits for."""
    with watched(tmp_path_factory.mktemp("seen")) as one:
        # On a busy machine a sample costs more, so the daemon takes fewer.
        wait_until(lambda: gpu_of(one)["seen_samples"].get("input_wait", 0) >= 3, 120)
        yield one


def test_finds_what_the_loop_waits_for_and_the_line(daemon: RunningDaemon) -> None:
    gpu, state, metrics = gpu_of(daemon), daemon.state()["gpus"][0], daemon.metrics()
    (place,) = [one for one in gpu["stacks"]["places"] if one["cause"] == "input_wait"][:1]

    assert gpu["seen_by_cause"]["input_wait"] > 1
    assert gpu["starved_seconds"] == pytest.approx(gpu["seen_seconds"])
    assert sum(gpu["seen_by_cause"].values()) == pytest.approx(gpu["seen_seconds"])
    assert state["seen_ns"]["input_wait"] > 0
    caller = place["caller"]
    assert (caller["function"], caller["file"], caller["line"]) == ("train", LOOP.name, 31)
    assert 'gpumon_gpu_seen_seconds_total{cause="input_wait",uuid="GPU-followed-0"}' in metrics


def test_shows_functions_and_files_in_the_report_and_on_the_page_alone(
    daemon: RunningDaemon,
) -> None:
    printed = printed_by(daemon)
    whole = f"/{SECRET}/{LOOP.name}"  # this is the user of the daemon and of the loop
    for path in SHOWING:
        printed[path] = printed[path].replace(whole, LOOP.name)

    assert [where for where, text in printed.items() if SECRET in text] == []
    assert {where for where, text in printed.items() if LOOP.name in text} == SHOWING


def test_shows_the_whole_path_to_the_user_of_the_process(daemon: RunningDaemon) -> None:
    (place,) = gpu_of(daemon)["stacks"]["places"][:1]
    (shown,) = json.loads(daemon.get("/api/v1/state")[1])["gpus"]
    text = gpumon("report", environ={"GPUMON_RUNTIME_DIR": str(daemon.runtime_dir)}).stdout

    path = place["caller"]["path"]
    assert path.startswith("/")
    assert path.endswith(f"/{SECRET}/{LOOP.name}")
    assert path in shown["seen_files"]
    assert f"seen in {path}" in text
    assert path.encode() in first_event(daemon)


@as_root
def test_shows_no_folder_to_another_user(daemon: RunningDaemon) -> None:
    read = become(imports="urllib.request, sys") + READ_AS_ANOTHER
    paths = [*EVERYTHING, STREAM]
    done = ran_python("-c", read, daemon.address, *paths)

    assert done.stdout.count(LOOP.name) >= len(SHOWING) + 1, done.stderr
    assert SECRET not in done.stdout


@pytest.mark.dstat
@pytest.mark.measured
def test_is_input_without_a_question_mark_in_dstat(daemon: RunningDaemon, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "GPUMON_RUNTIME_DIR": str(daemon.runtime_dir)}
    assert gpumon("dstat", "install", environ=environ).returncode == 0
    environ |= {"PATH": os.environ["PATH"], "PYTHONWARNINGS": "ignore"}
    columns = ["--gpu", "--gpu-stall", "1", "10"]
    written = on_a_terminal([*real_host("dstat").words, *columns], environ=environ)

    # A pause without a stack sample is only suspected.
    rows = [line for line in written.lines if re.search(r"\binput\b", line)]
    assert any("?" not in row for row in rows), written.raw


def test_leaves_a_process_alone_that_does_not_want_it(tmp_path: Path) -> None:
    with watched(tmp_path, GPUMON_NO_STACKS="1") as daemon:
        wait_until(lambda: "stacks: stacks of process" in " ".join(daemon.report()["notes"]), 60)
        gpu = gpu_of(daemon)

    assert gpu["stacks"] is None
    assert gpu["seen_seconds"] == 0


def test_is_refused_where_pauses_would_be_missed(tmp_path: Path) -> None:
    daemon = RunningDaemon(
        tmp_path, "--source=simulated:flat", "--stacks", "--period=2", ready=False
    )
    with daemon:
        code = daemon.process.wait(30)

    assert code == 2
    assert "--stacks needs a --period of at most 1 s" in daemon.log()

"""A real recorder that is killed, or runs with a daemon; what it recorded is replayed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.sources.recording import RecordingFile
from tests.daemon import RunningDaemon
from tests.processes import ending
from tests.programs import gpumon, ran_python
from tests.waiting import PATIENCE_S, wait_until

STEPS = 8
STILL_WRITTEN, OVER = "still being written", "recording ended"
TRAINING = f"""
import json, sys, time
from trainer_hooks import phase, step
spans, waited_ns = open(sys.argv[1], "a", buffering=1), 0
for _ in range({STEPS}):
    began_ns = time.monotonic_ns()
    with phase("input_wait"):
        time.sleep(0.25)
    start_ns = time.monotonic_ns()
    waited_ns += start_ns - began_ns
    with phase("train_step"):
        time.sleep(0.15)
    spans.write(json.dumps(dict(gpu=0, start_ns=start_ns, end_ns=time.monotonic_ns())) + "\\n")
    step(samples=8)
print(waited_ns / 1e9)
"""


def recorder(
    path: Path, *words: str, environ: Mapping[str, str]
) -> AbstractContextManager[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "gpumon", "record", str(path), *words],
        env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return ending(started)


def complete_members(raw: bytes) -> list[bytes]:
    """What any gzip reader finds before the first incomplete member."""
    members = []
    while raw:
        unpacker = zlib.decompressobj(31)
        text = unpacker.decompress(raw)
        if not unpacker.eof:
            break
        members.append(text)
        raw = unpacker.unused_data
    return members


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "GPUMON_RUNTIME_DIR": str(tmp_path / "run")}


class TestARecorderThatIsKilled:
    def test_leaves_every_block_that_it_has_written(
        self, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        times_s = (0.0, 1.5, 5.3)  # after the first block, within the second, behind it
        paths = [tmp_path / f"killed-after-{after_s}.gpumon" for after_s in times_s]
        words = ("--source", "simulated:eight", "--period", "0.05")
        with ExitStack() as stack:
            running = [
                stack.enter_context(recorder(path, *words, environ=environ)) for path in paths
            ]
            wait_until(lambda: all(path.exists() and path.stat().st_size for path in paths))
            began_s = time.monotonic()
            for after_s, process in zip(times_s, running, strict=True):
                time.sleep(max(0.0, began_s + after_s - time.monotonic()))
                process.send_signal(signal.SIGKILL)
                process.communicate(timeout=PATIENCE_S)

        for path in paths:
            members = complete_members(path.read_bytes())
            written = b"".join(members).count(b'{"at_ns":')
            with RecordingFile(path) as recording:
                assert len(list(recording.readings())) == written > 0
                (trouble,) = recording.troubles()
                assert STILL_WRITTEN in trouble
        assert len(complete_members(paths[-1].read_bytes())) >= 2
        reported = gpumon("replay", str(paths[-1]), environ=environ)
        assert reported.returncode == 0, reported.stderr
        assert STILL_WRITTEN in reported.stdout.replace("\n      ", " ")


class Played(NamedTuple):
    """One training run as recorded, as a daemon saw it live, and as replayed."""

    waited_s: float
    live: dict[str, Any]
    recorded: dict[str, Any]
    daemon: RunningDaemon


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("recorded")
    spans, path = folder / "busy.jsonl", folder / "training.gpumon"
    words = ("--source", f"follow:{spans}", "--period", "0.5")
    with (
        RunningDaemon(folder, *words) as daemon,
        recorder(path, *words, environ=daemon.environ) as recording,
    ):
        wait_until(lambda: path.exists() and path.stat().st_size > 0)
        environ = {**daemon.environ, "GPUMON_GPUS": "0", "GPUMON_RUN": "resnet"}
        printed = ran_python("-c", TRAINING, spans, environ=environ)
        live = daemon.settled_report()
        recording.send_signal(signal.SIGTERM)
        reported, _ = recording.communicate(timeout=PATIENCE_S)
        assert recording.returncode == 0, reported
    recorded = gpumon("replay", str(path), "--json", environ=daemon.environ)
    assert recorded.returncode == 0, recorded.stderr
    # In the same runtime folder: the ring of the training run is still there, and is of no concern.
    assert list((folder / "run" / "phases").glob("*.ring"))
    with RunningDaemon(folder, "--source", f"replay:{path},speed=50") as player:
        wait_until(lambda: OVER in player.log())
        yield Played(float(printed.stdout), live, json.loads(recorded.stdout), player)


class TestARunThatIsRecordedWhileADaemonWatches:
    def test_waited_for_input_as_long_as_it_measured(self, played: Played) -> None:
        (gpu,) = played.recorded["gpus"]

        waited_s = gpu["idle_by_cause"]["input_wait"]
        assert waited_s == pytest.approx(played.waited_s, rel=0.25)
        assert waited_s == pytest.approx(
            played.live["gpus"][0]["idle_by_cause"]["input_wait"], abs=0.4
        )

    def test_is_the_run_that_the_daemon_saw_and_complete(self, played: Played) -> None:
        ((live,), (recorded,)) = played.live["runs"], played.recorded["runs"]

        assert recorded["steps"] == STEPS
        for name in ("run", "pid", "steps", "framework", "gpus"):
            assert recorded[name] == live[name]
        assert not any("cut off" in note for note in played.recorded["notes"])


class TestADaemonThatReplaysIt:
    def test_ends_with_the_figures_of_the_recording_and_not_its_own(self, played: Played) -> None:
        document = played.daemon.report()
        busy_s = played.daemon.metrics()['gpumon_gpu_busy_seconds_total{uuid="GPU-followed-0"}']

        for name in ("gpus", "runs", "started_at"):
            assert document[name] == played.recorded[name]
        assert busy_s == pytest.approx(played.recorded["gpus"][0]["busy_seconds"], abs=1e-9)

    def test_is_marked_everywhere_as_not_live(self, played: Played) -> None:
        assert played.daemon.state()["replayed"] is True
        assert played.daemon.report()["replayed"] is True
        assert "(a recording, not live)" in played.daemon.log()
        assert played.daemon.metrics()['gpumon_collector_success{collector="replay"}'] == 0.0
        assert played.daemon.get("/-/ready")[0] == 503

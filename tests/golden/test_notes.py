"""Notes and refusals, pinned word for word: what is unknown, and whose figures these are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.report.report import Report
from gpumon.core.ring_format.events import RingsReading
from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.errors import GpumonError
from gpumon.outlets.recording import RecordingWriter
from gpumon.pipeline.state_report import report_of
from gpumon.sources.daemon import SilentDaemon, fetch_report, read_state
from gpumon.sources.follow import FollowSource
from gpumon.sources.recording import RecordingFile
from gpumon.sources.ring_reader.daemon_folder import LockedFolder, claim_runtime_dir
from tests.builders.logs import analysed, smi_log
from tests.builders.logs import report_of as report_of_log
from tests.builders.monitor import (
    ADAS_PROCESS,
    NO_RINGS,
    SAVE,
    STEP,
    WAIT,
    Story,
    monitor,
    other_user,
    reading,
    starve,
)
from tests.builders.recording import blocks_of, header, plain_readings, record
from tests.builders.state import monitor_state
from tests.builders.state import run as run_state
from tests.builders.time import HandClock, s
from tests.golden_files import Chapters, golden_story
from tests.unit.pipeline.test_history import Kept
from tests.unit.pipeline.test_log_track import busy_rows
from tests.unit.pipeline.test_report_builder import Watched


def notes(report: Report) -> str:
    return "\n".join(report.notes)


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(GpumonError) as refused:
        ask()
    message = str(refused.value).replace(f"pid {os.getpid()}", "pid 4711")
    return f"exit {refused.value.exit_code}: {message}"


def of_runs() -> Chapters:
    """Notes on runs whose figures a daemon's counters add up."""
    watched, early, daemon = Watched(), Watched(idle_s=0), Kept()
    early.story.ring("yesterday", pid=7)
    early.story.end_ring("yesterday", after_s=-60)
    early.train("today", STEP, 3)
    for pid, cause in ((42, WAIT), (43, SAVE), (44, SAVE)):
        watched.train("train", cause, 5, pid=pid)
        watched.idle()
    watched.train("slow", WAIT, 2, pid=45, ends=False)
    watched.begin("slow", 46)
    watched.story.ring("nowhere", pid=47, gpus=("GPU-9",))
    watched.idle(2)
    daemon.pass_seconds(601, 1.0)
    return {
        "all runs of a daemon": watched.note(),
        "one of three of one name": notes(watched.of("train")),
        "one of two of one name, which live": notes(watched.of("slow")),
        "one that is on no GPU": notes(watched.of("nowhere")),
        "one that may be older than the daemon": notes(early.of("today")),
        "one that does not exist": refusal(lambda: watched.of("fast")),
        "one that was over before": refusal(lambda: early.of("yesterday")),
        "the last 5 minutes": notes(daemon.last(300)),
        "the last hour, of ten minutes": notes(daemon.last(3600)),
    }


def of_what_is_watched() -> Chapters:
    """Notes on GPUs, rings and files that report less than they should."""

    gpus = (GpuSample(Device(uuid="GPU-0", index=0)),)

    def watched(*frames: Frame, rings: RingsReading = NO_RINGS, error: str | None = None) -> str:
        daemon = monitor("follow:/data/busy.jsonl")
        return notes(report_of(daemon.ingest(reading(s(1), *frames, rings=rings, error=error))))

    def of_run(*, simulated: bool = False, **changes: Any) -> str:
        run = run_state(**{"gpu_uuids": (), **changes})
        return notes(report_of(monitor_state(runs=(run,), simulated=simulated, collectors=())))

    story = Story()
    story.processes[0] = (ADAS_PROCESS,)
    other_user(story)
    return {
        "a followed file that is missing": watched(Frame(0, gpus, trouble="it is not there")),
        "a followed file with bad lines, once": watched(
            Frame(0, gpus, rejected=3, trouble="line 9: no"), Frame(1, gpus)
        ),
        "a source without an answer": watched(error="no driver"),
        "a ring that is refused": watched(
            Frame(0, gpus), rings=RingsReading(rejected=1, message="a.ring: torn")
        ),
        "a run of another user": notes(report_of(starve(story, 0.5, 0.0))),
        "a run on no GPU": of_run(),
        "a run on no simulated GPU": of_run(simulated=True),
        "a run whose framework computes on the CPU": of_run(on_cpu=True),
        "the same with simulated GPUs": of_run(on_cpu=True, simulated=True),
        "a run that names a GPU that is not there": of_run(named_gpus=("99",)),
        "a run whose waits are gross": of_run(loader={"input_wait": "gross"}),
    }


def of_logs() -> Chapters:
    """Notes on rows that were assumed, dropped or missing."""
    stamped = busy_rows((1, 599), (60, 120), (400, 1), (60, 5))
    return {
        "a log of one row": notes(analysed(smi_log([50]))),
        "a log with two periods, a hole and a duplicate row": notes(
            report_of_log([*stamped, stamped[-1]])
        ),
    }


def of_recordings(here: Path) -> Chapters:
    path = record(here / "night", plain_readings(26))
    blocks = blocks_of(path.read_bytes())

    def read(*parts: bytes) -> str:
        Path("night").write_bytes(b"".join(parts))
        with RecordingFile("night") as recording:
            list(recording.readings())
            return "\n".join(recording.troubles())

    def removed_meanwhile() -> None:
        with RecordingWriter(Path("gone")) as writer:
            for one in plain_readings(8):
                writer.keep(one, header())
                Path("gone").unlink(missing_ok=True)

    return {
        "a recording that was cut off": read(*blocks[:2], blocks[2][:100]),
        "a recording without two blocks": read(blocks[0], *blocks[3:]),
        "a recording without its beginning": refusal(lambda: read(blocks[0][:-9])),
        "a recording of nothing": refusal(lambda: read(b"")),
        "a recording that was removed while it was written": refusal(removed_meanwhile),
    }


def of_daemons(here: Path) -> Chapters:
    def held_twice() -> None:
        LockedFolder({"GPUMON_RUNTIME_DIR": "held"})

    held = LockedFolder({"GPUMON_RUNTIME_DIR": "held"})
    open_to_all = here / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    state = Path("state.json")
    state.write_text('{"monotonic_ns": 0, "period_ns": 1000000000, "boot_id": "a"}')
    refusals = {
        "a folder that a daemon has": refusal(held_twice),
        "a folder that is open to all": refusal(
            lambda: claim_runtime_dir({"GPUMON_RUNTIME_DIR": "open"})
        ),
        "no daemon": refusal(lambda: read_state(None, HandClock(), "a")),
        "a daemon that has stopped": refusal(lambda: read_state(state, HandClock(60), "a")),
        "a daemon of another boot": refusal(lambda: read_state(state, HandClock(), "b")),
        "a daemon that is silent": SilentDaemon(7, s(5)).description,
        "a daemon without a page": refusal(lambda: fetch_report({"address": None})),
        "a daemon that does not answer": refusal(lambda: fetch_report({"address": "127.0.0.1:9"})),
        "a file to follow in no folder": refusal(
            lambda: FollowSource(Path("none/busy.jsonl"), HandClock())
        ),
    }
    held.close()
    return refusals


@golden_story
def test_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chapters:
    monkeypatch.chdir(tmp_path)
    return {
        **of_runs(), **of_what_is_watched(), **of_logs(),
        **of_recordings(tmp_path), **of_daemons(tmp_path),
    }  # fmt: skip

"""Tests of `gpumon record` and `gpumon replay`. Their refusals are in ``tests/golden``."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gpumon.cli import record
from gpumon.cli.record import RecordProgress
from gpumon.cli.source_option import Replay, replay_of
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.reading import Reading
from gpumon.core.sample import Frame, GpuSample
from gpumon.errors import RestartNeededError, SourceUnavailableError, UsageError
from gpumon.outlets.recording import RecordingWriter
from gpumon.outlets.text.report_text import render_report
from gpumon.pipeline.replay import replayed_report
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.recording import RecordingFile
from gpumon.sources.ring_reader.phase_rings import leave_alone
from gpumon.sources.simulated import SimulatedSource
from tests.builders import recording as built
from tests.command_line import Shell, Terminal
from tests.unit.outlets.report_lines import PLAIN
from tests.waiting import wait_until

SHORTLY = ["--source", "simulated:healthy", "--period", "0.05", "--for", "0.3"]


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore signal handlers after the test."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "night.gpumon"


@pytest.fixture
def night(path: Path) -> Path:
    return built.record(path, list(built.training_readings(1, seconds=40)))


@pytest.mark.usefixtures("signals")
class TestRecord:
    def test_records_for_a_given_time(self, path: Path, gpumon: Shell) -> None:
        ended = gpumon("record", path, *SHORTLY, "--note", "two workers")

        with RecordingFile(path) as recording:
            readings, header = list(recording.readings()), recording.header
            assert recording.troubles() == ()
        assert 2 <= len(readings) <= 9  # a busy machine skips deadlines
        assert (header.source, header.simulated) == ("simulated:healthy", True)
        assert (header.note, len(header.devices)) == ("two workers", 2)
        assert (ended.code, ended.err) == (0, "")
        assert f"{path} has {len(readings)} readings" in ended.out
        assert f"gpumon replay {path}" in ended.out

    def test_records_a_last_tick_on_sigterm(self, path: Path, gpumon: Shell) -> None:
        def end_it_once_it_records() -> None:
            wait_until(lambda: path.exists() and path.stat().st_size > 0)
            os.kill(os.getpid(), signal.SIGTERM)

        ender = threading.Thread(target=end_it_once_it_records)
        ender.start()
        words = ["--source", "simulated:healthy", "--period", "10", "--for", "3650d"]
        assert gpumon("record", path, *words).code == 0
        ender.join()

        with RecordingFile(path) as recording:
            assert len(list(recording.readings())) == 2
            assert recording.read_ns < 9e9

    def test_continues_under_nohup(self, path: Path, gpumon: Shell) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

        assert gpumon("record", path, *SHORTLY).code == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN

    def test_keeps_its_recording_when_the_driver_is_reloaded(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, gpumon: Shell
    ) -> None:
        class Reloaded(SimulatedSource):
            def read(self, now: ReadNow = ReadNow.SAMPLES) -> Frame:
                if path.stat().st_size:
                    raise RestartNeededError("reloaded")
                return super().read()

        monkeypatch.setattr(
            "gpumon.cli.source_option.open_source",
            lambda _, clock, *__, **___: Reloaded("flat", clock),
        )

        ended = gpumon("record", path, *SHORTLY)

        assert ended.code == RestartNeededError.exit_code
        assert ended.is_refused_in_a_sentence
        assert f"{path} has 1 reading" in ended.out
        with RecordingFile(path) as recording:
            assert (len(list(recording.readings())), recording.troubles()) == (1, ())

    def test_leaves_rings_of_ended_runs_to_the_daemon(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, gpumon: Shell
    ) -> None:
        given = {}

        def watch(*args: object, **options: object) -> None:
            given.update(options)
            raise SourceUnavailableError("seen enough")

        monkeypatch.setattr(record, "watch_machine", watch)

        assert gpumon("record", path).code == 3
        assert given["unlink"] is leave_alone


BUSY_AND_UNKNOWN = [
    GpuSample(device=device, utilization_ratio=ratio)
    for device, ratio in zip(built.DEVICES, (0.97, None), strict=True)
]
TWO_READINGS = [built.reading(second, BUSY_AND_UNKNOWN) for second in (1, 2)]


class TestTheProgressLine:
    def shown_on(self, stream: io.StringIO, path: Path, readings: Iterable[Reading]) -> str:
        with RecordingWriter(path) as writer, RecordProgress(stream, writer) as line:
            for one in readings:
                writer.keep(one, built.header())
                line.update(one)
        return stream.getvalue()

    def test_has_length_size_and_utilisation(self, path: Path) -> None:
        shown = self.shown_on(Terminal(), path, TWO_READINGS)

        for figure in ("2 readings", "0:01 min, 0.", "GPU 0 97 %, GPU 1 -"):
            assert figure in shown
        assert shown.endswith("\x1b[2K")  # and is gone at the end

    def test_has_the_error_of_the_source(self, path: Path) -> None:
        shown = self.shown_on(Terminal(), path, [built.reading(1, frames=(), error="NVML 15")])

        assert "1 reading of 0:00" in shown
        assert "NVML 15" in shown

    def test_is_not_shown_without_a_terminal(self, path: Path) -> None:
        assert self.shown_on(io.StringIO(), path, TWO_READINGS) == ""


class TestARecording:
    def test_is_reported_as_text_and_as_json(self, night: Path, gpumon: Shell) -> None:
        with RecordingFile(night) as recording:
            report = replayed_report(recording).report

        assert report.replayed
        assert gpumon("replay", night) == (0, render_report(report, PLAIN), "")
        assert gpumon("replay", night, "--json").document == encode_report(report)

    @pytest.mark.parametrize(
        "words",
        [["replay"], ["report", "--json", "--since", "20s"]],
        ids=" ".join,
    )
    def test_is_also_written_as_a_page(self, night: Path, gpumon: Shell, words: list[str]) -> None:
        page = night.with_name("night.html")

        assert gpumon(*words, night, "--html", page) == gpumon(*words, night)
        assert "resnet-1" in page.read_text()
        assert '<img src="data:' in page.read_text()

    @pytest.mark.parametrize("scope", [[], ["--since", "20s"], ["--run", "resnet-1"]])
    def test_or_a_part_of_it_is_compared_with_a_limit(
        self, night: Path, gpumon: Shell, scope: list[str]
    ) -> None:
        words = ["report", str(night), "--json", *scope, "--fail-if-lost-above"]

        shut = gpumon(*words, "0")
        lost = [gpu["lost_ratio"] for gpu in shut.document["gpus"]]

        assert shut.code == 1
        assert gpumon(*words, str(100 * max(lost) + 0.01)).code == 0


class TestTheSource:
    @pytest.mark.parametrize(
        ("word", "meant"),
        [
            ("replay:a.gpumon", Replay("a.gpumon", 1.0)),
            ("replay:a,b.gpumon,speed=0.5", Replay("a,b.gpumon", 0.5)),
            ("replay:a,speed=2,speed=1e3", Replay("a,speed=2", 1_000.0)),
            ("simulated:flat", None),
        ],
    )
    def test_may_be_a_recording_with_a_speed(self, word: str, meant: Replay | None) -> None:
        assert replay_of(word) == meant

    @pytest.mark.parametrize("option", ["speed=", "speed=0", "speed=nan", "speed=20000", "sped=3"])
    def test_must_have_a_valid_speed(self, option: str) -> None:
        with pytest.raises(UsageError):
            replay_of(f"replay:a,{option}")

    def test_may_be_a_file_whose_name_looks_like_an_option(self, tmp_path: Path) -> None:
        oddly_named = tmp_path / "a,sped=3"
        oddly_named.touch()

        assert replay_of(f"replay:{oddly_named}") == Replay(str(oddly_named), 1.0)

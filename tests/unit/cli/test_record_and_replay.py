"""Specification of `gpumon record` and `gpumon replay`: what is typed, and what is told."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli import record
from gpumon.cli.main import main
from gpumon.cli.open_source import Replay, replay_of
from gpumon.cli.record import RecordProgress
from gpumon.core.documents.report_codec import encode_report
from gpumon.core.sample import Frame, GpuSample
from gpumon.errors import RestartNeededError, SourceUnavailableError, UsageError
from gpumon.outlets.recording import RecordingWriter
from gpumon.pipeline.replay import replayed_report
from gpumon.sources.recording import RecordingFile
from gpumon.sources.rings.phase_rings import leave_alone
from gpumon.sources.simulated import SimulatedSource
from tests import builders_recording as built
from tests.patience import wait_until

SHORTLY = ["--source", "simulated:healthy", "--period", "0.05", "--for", "0.3"]


@pytest.fixture
def signals() -> Iterator[None]:
    """What the command does with signals, put back afterwards."""
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
    return built.record(path, list(built.training_moments(1, seconds=40)))


class TestRecord:
    @pytest.mark.usefixtures("signals")
    def test_keeps_what_the_source_says_for_so_long(
        self, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["record", str(path), *SHORTLY, "--note", "two workers"]) == 0

        told = capsys.readouterr()
        with RecordingFile(path) as recording:
            moments, header = list(recording.moments()), recording.header
            assert recording.troubles() == ()
        assert 2 <= len(moments) <= 9  # a busy machine skips deadlines
        assert (header.source, header.simulated) == ("simulated:healthy", True)
        assert (header.note, len(header.devices)) == ("two workers", 2)
        assert told.out.startswith(f"gpumon: {path} holds {len(moments)} readings of 0:00 min")
        assert f"gpumon replay {path}" in told.out
        assert told.err == ""

    @pytest.mark.usefixtures("signals")
    @pytest.mark.parametrize("length", [[], ["--for", "3650d"]])
    def test_takes_a_last_reading_when_it_is_told_to_end(
        self, path: Path, length: list[str]
    ) -> None:
        def end_it_once_it_records() -> None:
            wait_until(lambda: path.exists() and path.stat().st_size > 0)
            os.kill(os.getpid(), signal.SIGTERM)

        ender = threading.Thread(target=end_it_once_it_records)
        ender.start()
        words = ["--source", "simulated:healthy", "--period", "60", *length]
        assert main(["record", str(path), *words]) == 0
        ender.join()

        with RecordingFile(path) as recording:
            assert len(list(recording.moments())) == 2
            assert recording.read_ns < 30e9

    @pytest.mark.usefixtures("signals")
    def test_goes_on_under_nohup_when_the_terminal_goes(self, path: Path) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

        assert main(["record", str(path), *SHORTLY]) == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN

    @pytest.mark.usefixtures("signals")
    def test_keeps_what_it_has_where_only_a_new_process_can_go_on(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        class Reloaded(SimulatedSource):
            """The driver is reloaded under it."""

            def read(self) -> Frame:
                if path.stat().st_size:
                    raise RestartNeededError("the driver was reloaded: start gpumon again")
                return super().read()

        monkeypatch.setattr(
            "gpumon.cli.open_source.open_source",
            lambda _, clock, *__, **___: Reloaded("flat", clock),
        )

        assert main(["record", str(path), *SHORTLY]) == RestartNeededError.exit_code
        told = capsys.readouterr()
        assert "the driver was reloaded" in told.err
        assert f"{path} holds 1 reading of" in told.out
        with RecordingFile(path) as recording:
            assert (len(list(recording.moments())), recording.troubles()) == (1, ())

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["-"], 2, "cannot go to the standard output"),
            (["{folder}"], 1, "is a folder"),
            (["{folder}/none/file"], 1, "there is no folder"),
            (["{folder}/there"], 1, "is there already"),
            (["{folder}/new", "--source", "replay:{folder}/there"], 2, "copy the file"),
            (["{folder}/new", "--source", "replay:"], 2, "replay: wants a recording"),
            (["{folder}/new", "--source", "elsewhere"], 2, "unknown source 'elsewhere'"),
            (["{folder}/new", "--source", "simulated:flat", "--nvml-off", "fan"], 2, "--nvml-off"),
        ],
    )
    def test_refuses_in_a_sentence(
        self,
        path: Path,
        capsys: pytest.CaptureFixture[str],
        words: list[str],
        code: int,
        said: str,
    ) -> None:
        (path.parent / "there").touch()

        assert main(["record", *(word.format(folder=path.parent) for word in words)]) == code

        assert said in capsys.readouterr().err
        assert not (path.parent / "new").exists()

    @pytest.mark.usefixtures("signals")
    def test_leaves_no_file_where_no_gpu_can_be_read(
        self, path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise SourceUnavailableError("libnvidia-ml.so.1 was not found")

        monkeypatch.setattr("gpumon.cli.open_source.open_source", refuse)

        assert main(["record", str(path)]) == 3
        assert "libnvidia-ml.so.1 was not found" in capsys.readouterr().err
        assert not path.exists()

    def test_needs_a_length_of_time_that_is_one(self, path: Path) -> None:
        with pytest.raises(SystemExit) as exit_:
            main(["record", str(path), "--for", "ever"])

        assert exit_.value.code == 2

    @pytest.mark.usefixtures("signals")
    def test_leaves_the_rings_of_ended_trainings_to_the_daemon(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = {}

        def watch(*args: object, **options: object) -> None:
            told.update(options)
            raise SourceUnavailableError("seen enough")

        monkeypatch.setattr(record, "watch_machine", watch)

        assert main(["record", str(path)]) == 3
        assert told["unlink"] is leave_alone


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestTheLineWhileItRecords:
    def test_says_how_long_how_much_and_how_busy(self, path: Path) -> None:
        with RecordingWriter(path) as writer, RecordProgress(screen := Terminal(), writer) as line:
            for second in (1, 2):
                gpus = [GpuSample(device=built.DEVICES[0], utilization_ratio=0.97)]
                one = built.moment(second, [*gpus, GpuSample(device=built.DEVICES[1])])
                writer.keep(one, built.header())
                line.tell(one)

        shown = screen.getvalue()
        assert "2 readings of 0:01 min, 0." in shown
        assert "busy now: GPU 0 97 %, GPU 1 -" in shown
        assert shown.endswith("\x1b[2K")  # and is gone at the end

    def test_says_why_nothing_comes(self, path: Path) -> None:
        with RecordingWriter(path) as writer, RecordProgress(screen := Terminal(), writer) as line:
            one = built.moment(1, frames=(), error="GPU is lost")
            writer.keep(one, built.header())
            line.tell(one)

        assert "1 reading of 0:00 min" in screen.getvalue()
        assert "GPU is lost" in screen.getvalue()

    def test_is_not_shown_where_nobody_looks(self, path: Path) -> None:
        with RecordingWriter(path) as writer, RecordProgress(stream := io.StringIO(), writer) as at:
            one = built.moment(1)
            writer.keep(one, built.header())
            at.tell(one)

        assert stream.getvalue() == ""


class TestReplay:
    def test_prints_the_report(self, night: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["replay", str(night)]) == 0

        told = capsys.readouterr().out
        assert told.startswith("Verdict: ")
        assert "This is of a recording, not of now." in told.replace("\n", " ")

    def test_prints_it_as_json(self, night: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["replay", str(night), "--json"]) == 0

        with RecordingFile(night) as recording:
            document = encode_report(replayed_report(recording))
        assert json.loads(capsys.readouterr().out) == document
        assert document["replayed"] is True

    @pytest.mark.parametrize("command", ["replay", "report"])
    def test_refuses_what_is_none(
        self, path: Path, capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        path.write_text("index, utilization.gpu [%]\n0, 97 %\n")

        assert main([command, str(path)]) == 1
        assert f"`gpumon analyze {path}`" in capsys.readouterr().err


class TestOtherCommands:
    def test_report_takes_a_recording(
        self, night: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["report", str(night), "--json", "--run", "resnet-1"]) == 0

        assert [run["run"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["resnet-1"]

    def test_report_judges_a_recording(
        self, night: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["report", str(night), "--fail-if-starved-above", "5"]) == 1
        assert "starved, or suspected to be" in capsys.readouterr().err

    @pytest.mark.parametrize("scope", [[], ["--since", "20s"], ["--run", "resnet-1"]])
    def test_report_holds_what_was_asked_of_it_against_a_limit_of_all_that_is_lost(
        self, night: Path, capsys: pytest.CaptureFixture[str], scope: list[str]
    ) -> None:
        words = ["report", str(night), "--json", *scope, "--fail-if-lost-above"]

        code = main([*words, "0"])
        printed = capsys.readouterr()
        lost = [gpu["lost_ratio"] for gpu in json.loads(printed.out)["gpus"]]

        assert code == 1
        assert "of the time in use is lost: GPU 0 (" in printed.err
        assert main([*words, str(100 * max(lost) + 0.01)]) == 0

    def test_report_compares_two(self, night: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report", "--json", "--compare", str(night), str(night)]) == 0

        both = json.loads(capsys.readouterr().out)
        assert both["before"] == both["after"]

    def test_report_compares_two_and_not_three(self, night: Path) -> None:
        assert main(["report", str(night), "--compare", str(night), str(night)]) == 2

    def test_analyze_says_who_reads_it(
        self, night: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["analyze", str(night)]) == 1
        assert f"`gpumon replay {night}`" in capsys.readouterr().err

    def test_serve_refuses_what_is_none_before_it_serves(
        self, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path.write_text("index\n")

        assert main(["serve", "--source", f"replay:{path}", "--listen", "127.0.0.1:0"]) == 1
        assert "is no recording" in capsys.readouterr().err


class TestTheSourceWord:
    @pytest.mark.parametrize(
        ("word", "meant"),
        [
            ("replay:a.gpumon", Replay("a.gpumon", 1.0)),
            ("replay:a,b.gpumon,speed=0.5", Replay("a,b.gpumon", 0.5)),
            ("replay:a,speed=2,speed=1e3", Replay("a,speed=2", 1_000.0)),
            ("simulated:flat", None),
        ],
    )
    def test_names_a_recording_and_a_speed(self, word: str, meant: Replay | None) -> None:
        assert replay_of(word) == meant

    @pytest.mark.parametrize("speed", ["", "fast", "0", "-1", "nan", "inf", "20000"])
    def test_is_refused_with_a_speed_that_is_none(self, speed: str) -> None:
        with pytest.raises(UsageError, match=r"is no speed: say one from 0\.01 to 10000"):
            replay_of(f"replay:a,speed={speed}")

    def test_is_refused_with_an_option_that_there_is_not(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"has no option 'sped': say ,speed=N"):
            replay_of("replay:a.gpumon,sped=3")

        oddly_named = tmp_path / "a,sped=3"
        oddly_named.touch()
        assert replay_of(f"replay:{oddly_named}") == Replay(str(oddly_named), 1.0)

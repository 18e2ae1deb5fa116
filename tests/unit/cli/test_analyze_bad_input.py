"""Specification of logs in a bad state: a sentence or a report of what is there, no traceback."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpumon.cli.main import main
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import LogText
from tests.builders_logs import HEADER, analyse_file, rows, smi_log, smi_stamp
from tests.processes import ending

NO_OPTIONS = LogOptions()


def gpumon(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "gpumon", "analyze", *words],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def observed_s(path: Path | str) -> float:
    return analyse_file(str(path), NO_OPTIONS).observed_ns / 1e9


class TestGzipThatIsCutShort:
    def test_is_reported_as_far_as_it_goes_and_fails(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = smi_log([at * 7919 % 101 for at in range(20_000)])
        packed = gzip.compress(log.encode())
        path = tmp_path / "gpu.csv.gz"
        path.write_bytes(packed[: len(packed) * 3 // 4])

        code = main(["analyze", "--json", str(path)])

        out, err = capsys.readouterr()
        report = json.loads(out)
        assert code == 1
        assert 12_000 < report["observed_seconds"] < 17_000
        assert "cut short or damaged after line" in err
        assert "Only a part of the log was read" in " ".join(report["notes"])

    def test_before_its_first_row_is_a_sentence_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "gpu.csv.gz"
        path.write_bytes(gzip.compress(smi_log([5]).encode())[:30])

        code = main(["analyze", str(path)])

        assert code == 1
        assert capsys.readouterr().out == ""


class TestAFileThatGrowsWhileItIsRead:
    def test_is_read_as_it_was_opened(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(smi_log([5] * 100))

        with LogText(str(path)) as text, path.open("a") as log:
            lines = text.lines()
            first = next(lines)
            log.write(rows(*(f"{smi_stamp(at)}, 0, A40, 5 %, 1" for at in range(101, 9_000))))
            log.flush()

            assert [first, *lines] == smi_log([5] * 100).splitlines(keepends=True)

    def test_ends_with_its_last_whole_line(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text("time,util\n1,97\n2,9")

        with LogText(str(path)) as text:
            with path.open("a") as log:
                log.write("7\n")

            assert list(text.lines()) == ["time,util\n", "1,97\n"]

    def test_by_another_thread_ends(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(smi_log([5] * 2_000))
        stop = threading.Event()

        def write_on() -> None:
            with path.open("a") as log:
                at = 2_000
                while not stop.is_set():
                    at += 1
                    log.write(f"{smi_stamp(at)}, 0, NVIDIA A40, 5 %, 1830 MiB\n")
                    log.flush()

        writer = threading.Thread(target=write_on)
        writer.start()
        try:
            report = analyse_file(str(path), NO_OPTIONS)
        finally:
            stop.set()
            writer.join()

        assert report.observed_ns >= 2_000 * 10**9
        assert report.skipped_lines == 0


class TestAPipe:
    def test_with_a_name_is_read_to_its_end(self, tmp_path: Path) -> None:
        path = tmp_path / "fifo"
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: path.write_text(smi_log([5] * 30)))
        writer.start()
        try:
            assert observed_s(path) == 30.0
        finally:
            writer.join()

    def test_whose_writer_dies_in_a_line_is_read_up_to_it(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = smi_log([5] * 30) + smi_stamp(31)[:12]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.encode())))

        code = main(["analyze", "--json", "-"])

        report = json.loads(capsys.readouterr().out)
        assert code == 0
        assert report["observed_seconds"] == 30.0
        assert report["skipped_lines"] == 1

    def test_that_nobody_reads_any_more_ends_quietly(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(smi_log([5, 90] * 400))
        analysis = subprocess.Popen(
            [sys.executable, "-m", "gpumon", "analyze", *[str(path)] * 40],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        with ending(analysis) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()
            complaint = process.stderr.read()

            assert process.wait(60) == 0
        assert complaint == b""


class TestAName:
    def test_that_is_no_text_is_printed_all_the_same(self, tmp_path: Path) -> None:
        path, missing = (os.fsencode(tmp_path) + name for name in (b"/gpu\xff.csv", b"/no\xff.csv"))
        with open(path, "w") as log:  # noqa: PTH123  (a path of bytes)
            log.write(smi_log([5] * 30))

        done = gpumon(os.fsdecode(path), os.fsdecode(missing))

        assert done.returncode == 1
        assert b"Verdict" in done.stdout
        assert done.stderr.count(b"\n") == 1
        assert b"no such file" in done.stderr

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_of_a_file_that_may_not_be_read_is_a_sentence(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(smi_log([5]))
        path.chmod(0)

        assert main(["analyze", str(path)]) == 1


class TestBytesThatDoNotBelong:
    def test_zeros_of_a_crash_cost_the_lines_they_are_in(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        log = smi_log([5] * 200).encode()
        path.write_bytes(log + smi_stamp(201)[:9].encode() + b"\0" * 4096 + b"\n"
                         + smi_log([0] * 201).encode().splitlines()[-1] + b"\n")  # fmt: skip

        report = analyse_file(str(path), NO_OPTIONS)

        assert report.observed_ns == 201 * 10**9
        assert report.skipped_lines == 1

    def test_zeros_among_the_first_lines_are_no_binary(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_bytes(smi_log([5] * 200).encode().replace(b"\n2025", b"\n\0\0002025", 3))

        assert observed_s(path) == 200.0

    @pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
    def test_line_ends_of_any_kind_and_mixed_end_lines(self, tmp_path: Path, end: str) -> None:
        path = tmp_path / "gpu.csv"
        first, rest = smi_log([5] * 40).split("\n", 1)
        path.write_bytes((first + "\n" + rest.replace("\n", end)).encode())

        report = analyse_file(str(path), NO_OPTIONS)

        assert report.observed_ns == 40 * 10**9
        assert report.skipped_lines == 0

    def test_a_header_alone_is_a_sentence(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(HEADER + "\n")

        assert main(["analyze", str(path)]) == 1
        assert "no line under it" in capsys.readouterr().err

"""Tests of opening a log: in any packing and encoding, or a refusal in one sentence."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from itertools import chain
from pathlib import Path

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import MAX_PIECE, LogText
from tests.logs.test_samples import FOLDER

TEXT = "timestamp, utilization.gpu [%]\n2025/06/13 00:00:01.000, 45 %\n"
LINES = TEXT.splitlines(keepends=True)
READ_BY_LINES = (
    "dcgmi_dmon--utilisation_and_memory.txt",
    "gpustat_json--one_a_line.jsonl",
    "gpustat_text--interval.txt",
    "nvidia_smi_csv--epoch_ms_ratio.csv",
    "nvidia_smi_dmon--pucm_date_and_time.txt",
    "nvidia_smi_q--utilization_old.txt",
    "nvidia_smi_table--driver_580_without_dates.log",
    "wide_json--wandb_events.jsonl",
)


SAME = {
    "utf-8": TEXT.encode(),
    "bom": TEXT.encode("utf-8-sig"),
    "utf-16 bom": TEXT.encode("utf-16"),
    "utf-16-le": TEXT.encode("utf-16-le"),
    "utf-16-be": TEXT.encode("utf-16-be"),
    "crlf": TEXT.replace("\n", "\r\n").encode(),
    "powershell": TEXT.replace("\n", "\r\n").encode("utf-16"),
    "gzip": gzip.compress(TEXT.encode()),
    "gzip utf-16": gzip.compress(TEXT.encode("utf-16")),
}


def lines_of(path: Path) -> list[str]:
    with LogText(str(path)) as text:
        return list(text.lines())


def file_with(folder: Path, data: bytes) -> Path:
    path = folder / "gpu.csv"
    path.write_bytes(data)
    return path


class TestALog:
    @pytest.mark.parametrize("data", SAME.values(), ids=SAME)
    def test_has_the_same_lines_in_any_encoding_and_packing(
        self, tmp_path: Path, data: bytes
    ) -> None:
        assert lines_of(file_with(tmp_path, data)) == LINES

    @pytest.mark.parametrize(
        ("line", "encoding"),
        [("Gerät\n", "latin-1"), ("“GPU” 45 °C\n", "cp1252"), ("时间,显卡利用率\n", "gb18030"),
         ("Gerät\n", "utf-8"), ("时间\n", "utf-8")],
    )  # fmt: skip
    def test_may_be_in_an_encoding_other_than_utf_8(
        self, tmp_path: Path, line: str, encoding: str
    ) -> None:
        assert lines_of(file_with(tmp_path, TEXT.encode() + line.encode(encoding)))[2] == line

    def test_stays_utf_8_with_a_damaged_letter(self, tmp_path: Path) -> None:
        data = TEXT.encode() + "Gerät Größe".encode() + b"\xff\n"

        assert lines_of(file_with(tmp_path, data))[2] == "Gerät Größe\ufffd\n"


ZEROS = bytes(10_000)


class TestBlocksOfZeros:
    @pytest.mark.parametrize("at", range(len(LINES) + 1))
    def test_between_lines_are_skipped_with_a_note(self, tmp_path: Path, at: int) -> None:
        data = "".join(LINES[:at]).encode() + ZEROS + "".join(LINES[at:]).encode()

        with LogText(str(file_with(tmp_path, data))) as text:
            assert list(text.lines()) == LINES
            assert "Skipped 10,000 zero bytes" in text.notes[0]

    def test_leave_a_mark_on_a_line_that_they_cut(self, tmp_path: Path) -> None:
        data = TEXT.encode()[:-4] + ZEROS + LINES[1].encode()

        assert lines_of(file_with(tmp_path, data)) == [LINES[0], LINES[1][:-4] + "\0\n", LINES[1]]

    def test_without_an_end_are_refused_at_once(self) -> None:
        with Path("/dev/zero").open("rb") as zeros, pytest.raises(UnreadableLogError, match=BINARY):
            LogText("-", zeros)


class _EndlessLine(io.RawIOBase):
    """Digits without a line end."""

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        given = min(len(buffer), self._left)
        self._left -= given
        buffer[:given] = b"7" * given
        return given


class TestALineWithoutEnd:
    def test_comes_in_pieces_and_the_last_one_has_the_newline(self, tmp_path: Path) -> None:
        line = "5" * (2 * MAX_PIECE) + "end\n"

        pieces = lines_of(file_with(tmp_path, line.encode() + b"next\n"))

        assert "".join(pieces[:-1]) == line
        assert [piece.endswith("\n") for piece in pieces] == [False, False, True, True]
        assert max(map(len, pieces)) == MAX_PIECE

    def test_needs_only_the_memory_of_a_piece(self) -> None:
        size_bytes = 16 << 20
        with LogText("-", io.BufferedReader(_EndlessLine(size_bytes))) as text:
            tracemalloc.start()
            try:
                read = sum(len(piece) for piece in text.lines())
                _, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()

        assert read == size_bytes
        assert peak_bytes < 1 << 20

    @pytest.mark.parametrize("sample", READ_BY_LINES)
    def test_counts_as_one_skipped_line(self, sample: str) -> None:
        lines = lines_of(FOLDER / sample)
        endless = ("9" * MAX_PIECE, "9" * MAX_PIECE, "9\n")

        reader = reader_for(chain(lines, endless, lines), name="a log", options=LogOptions())
        rows = sum(len(columns.stamps_ns) for block in reader.blocks() for columns in block)

        assert rows >= 120
        assert any(f"line {len(lines) + 1}." in note for note in reader.facts().notes)
        assert not any("Skipped 3 lines" in note for note in reader.facts().notes)


PACKED = gzip.compress("".join(f"{n * 7919 % 1000003}\n" for n in range(50_000)).encode())
BINARY = "is binary, not text; .*tables, CSV and JSON"


class TestARefusal:
    @pytest.mark.parametrize(
        ("name", "message"),
        [("gpu.csv", "no such file"), (".", "is a directory"), ("gpu\0.csv", "cannot be opened")],
    )
    def test_names_the_reason_if_there_is_no_file(
        self, tmp_path: Path, name: str, message: str
    ) -> None:
        with pytest.raises(UnreadableLogError, match=message):
            LogText(f"{tmp_path}/{name}")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "is empty"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", BINARY),
            (bytes(range(256)) * 8, BINARY),
            (PACKED[: len(PACKED) // 2], r"cut short or damaged after line \d{3,}"),
            (PACKED[:12], "damaged within line 1"),
        ],
        ids=["empty", "a picture", "all bytes", "half of gzip", "the beginning of gzip"],
    )
    def test_names_the_reason_if_it_is_no_text(
        self, tmp_path: Path, data: bytes, message: str
    ) -> None:
        with pytest.raises(UnreadableLogError, match=message):
            lines_of(file_with(tmp_path, data))

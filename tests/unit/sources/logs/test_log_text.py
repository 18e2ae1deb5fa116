"""Specification of opening a log: any packing, any encoding, or one sentence."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_text import MAX_PIECE, LogText

TEXT = "timestamp, utilization.gpu [%]\n2025/06/13 00:00:01.000, 45 %\n"
LINES = TEXT.splitlines(keepends=True)


def lines_of(path: Path) -> list[str]:
    with LogText(str(path)) as text:
        return list(text.lines())


def file_with(folder: Path, data: bytes) -> Path:
    path = folder / "gpu.csv"
    path.write_bytes(data)
    return path


class TestTheSameLinesCome:
    @pytest.mark.parametrize(
        "data",
        [
            TEXT.encode(),
            TEXT.encode("utf-8-sig"),
            TEXT.encode("utf-16"),
            TEXT.encode("utf-16-le"),
            TEXT.encode("utf-16-be"),
            TEXT.replace("\n", "\r\n").encode(),
            TEXT.replace("\n", "\r\n").encode("utf-16"),
            gzip.compress(TEXT.encode()),
            gzip.compress(TEXT.encode("utf-16")),
        ],
        ids=["utf-8", "bom", "utf-16 bom", "utf-16-le", "utf-16-be", "crlf", "powershell",
             "gzip", "gzip utf-16"],
    )  # fmt: skip
    def test_from_any_encoding_and_packing(self, tmp_path: Path, data: bytes) -> None:
        assert lines_of(file_with(tmp_path, data)) == LINES

    def test_from_the_standard_input(self) -> None:
        with LogText("-", io.BytesIO(gzip.compress(TEXT.encode()))) as text:
            assert list(text.lines()) == LINES
            assert text.name == "standard input"

    def test_with_a_letter_that_is_no_utf_8_kept_as_a_mark(self, tmp_path: Path) -> None:
        data = TEXT.encode() + "Gerät\n".encode("latin-1")

        assert lines_of(file_with(tmp_path, data))[2] == "Ger\ufffdt\n"


class _EndlessLine(io.RawIOBase):
    """Digits without a line end, made up as they are read."""

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        given = min(len(buffer), self._left)
        self._left -= given
        buffer[:given] = b"7" * given
        return given


class TestALineWithoutAnEnd:
    def test_comes_in_pieces_of_which_the_last_has_the_newline(self, tmp_path: Path) -> None:
        line = "5" * (2 * MAX_PIECE) + "end\n"

        pieces = lines_of(file_with(tmp_path, line.encode() + b"next\n"))

        assert "".join(pieces[:-1]) == line
        assert [piece.endswith("\n") for piece in pieces] == [False, False, True, True]
        assert max(map(len, pieces)) == MAX_PIECE

    def test_takes_the_memory_of_a_piece(self) -> None:
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


class TestOneSentenceComes:
    def test_for_a_file_that_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableLogError, match="no such file"):
            LogText(str(tmp_path / "gpu.csv"))

    def test_for_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableLogError, match="is a directory"):
            LogText(str(tmp_path))

    def test_for_a_name_no_file_can_have(self) -> None:
        with pytest.raises(UnreadableLogError, match="cannot be opened"):
            LogText("gpu\0.csv")

    def test_for_an_empty_file(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableLogError, match="is empty"):
            LogText(str(file_with(tmp_path, b"")))

    @pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", bytes(range(256)) * 8])
    def test_for_a_binary(self, tmp_path: Path, data: bytes) -> None:
        with pytest.raises(
            UnreadableLogError, match=r"is binary, not text; .*tables, CSV and JSON"
        ):
            LogText(str(file_with(tmp_path, data)))

    def test_for_gzip_that_is_cut_short_with_the_line_reached(self, tmp_path: Path) -> None:
        packed = gzip.compress("".join(f"{n * 7919 % 1000003}\n" for n in range(50_000)).encode())
        path = file_with(tmp_path, packed[: len(packed) // 2])

        with pytest.raises(UnreadableLogError, match=r"cut short or damaged after line \d{3,}"):
            lines_of(path)

    def test_for_gzip_of_which_only_the_beginning_is_there(self, tmp_path: Path) -> None:
        path = file_with(tmp_path, gzip.compress(TEXT.encode())[:12])

        with pytest.raises(UnreadableLogError, match="damaged within line 1"):
            lines_of(path)


class TestAnyBytes:
    @given(st.binary(max_size=300))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_are_lines_or_a_sentence(self, tmp_path: Path, data: bytes) -> None:
        try:
            lines = lines_of(file_with(tmp_path, data))
        except UnreadableLogError:
            return

        assert all(line.count("\n") <= 1 for line in lines)


class TestHowFarItIsRead:
    def test_is_told_for_a_file_and_not_for_a_pipe(self, tmp_path: Path) -> None:
        with LogText(str(file_with(tmp_path, TEXT.encode()))) as text:
            list(text.lines())
            assert text.position_bytes() == text.size_bytes == len(TEXT)
        with LogText("-", io.BytesIO(TEXT.encode())) as text:
            assert text.position_bytes() is None
            assert text.size_bytes is None

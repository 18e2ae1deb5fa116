"""Tests of reading a recording: every complete block is read, whatever happened to the file."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpumon.core.codecs.recording_codec import HEAD_BYTES, MAGIC, pack_block
from gpumon.core.reading import Reading
from gpumon.errors import UnreadableLogError
from gpumon.sources.recording import RecordingFile, is_recording
from tests.builders.recording import blocks_of, plain_readings, record, training_readings
from tests.waiting import PATIENCE_S

READINGS = plain_readings(26)
"""The first in its own block, then five blocks of five seconds."""


def read(path: Path) -> tuple[list[Reading], tuple[str, ...]]:
    with RecordingFile(path) as recording:
        return list(recording.readings()), recording.troubles()


class Night:
    """A recording in blocks that a test can damage."""

    def __init__(self, path: Path, readings: Sequence[Reading]) -> None:
        self.path = record(path, readings)
        self.raw = path.read_bytes()
        self.blocks = blocks_of(self.raw)

    def read_of(self, *parts: bytes | bytearray) -> tuple[list[Reading], tuple[str, ...]]:
        self.path.write_bytes(b"".join(parts))
        return read(self.path)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path / "night.gpumon", READINGS)


@pytest.fixture
def path(night: Night) -> Path:
    return night.path


class TestACompleteRecording:
    def test_is_read_without_a_warning(self, path: Path) -> None:
        assert read(path) == (READINGS, ())

    def test_is_what_zcat_and_jq_read(self, path: Path) -> None:
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]

        assert lines[0]["schema"] == "gpumon.recording/1"
        assert sum("at_ns" in line for line in lines) == len(READINGS)
        assert lines[-1] == {"end": "ended"}

    def test_is_recognised_by_its_first_bytes(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "log.csv.gz").write_bytes(gzip.compress(b"index, utilization.gpu\n"))

        assert is_recording(path)
        assert not is_recording(tmp_path / "log.csv.gz")
        assert not is_recording(tmp_path)
        assert not is_recording(tmp_path / "none")

    def test_is_not_looked_for_in_a_pipe(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with ThreadPoolExecutor() as pool:
            written = pool.submit(pipe.write_text, "index, utilization.gpu\n")
            assert not any(is_recording(pipe) for _ in range(100))
            reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            assert written.result(timeout=PATIENCE_S) > 0
            assert os.read(reader, 100) == b"index, utilization.gpu\n"
            os.close(reader)


class TestATruncatedRecording:
    def test_loses_only_the_block_in_which_it_ends(self, night: Night) -> None:
        ends = [sum(map(len, night.blocks[: n + 1])) for n in range(len(night.blocks))]
        whole = [1, 6, 11, 16, 21, 26]
        assert len(night.blocks) == len(whole)

        for size in range(ends[0], len(night.raw)):
            kept = max(count for end, count in zip(ends, whole, strict=True) if end <= size)
            readings, (trouble,) = night.read_of(night.raw[:size])
            assert readings == READINGS[:kept]
            assert f" {kept - 1} s " in trouble

    def test_is_refused_without_a_complete_block(self, night: Night) -> None:
        for size in range(1, len(night.blocks[0])):
            with pytest.raises(UnreadableLogError, match=r"damaged|not a recording"):
                night.read_of(night.blocks[0][:size])


class TestADamagedRecording:
    @pytest.mark.parametrize("offset", [0, 5, 17, 18, HEAD_BYTES + 3, -3, None])
    def test_loses_only_the_damaged_block(self, night: Night, offset: int | None) -> None:
        hurt = bytearray(night.blocks[2])
        if offset is None:
            hurt[:] = pack_block(b'{"block":2}\n{"at_ns":"soon"}\n')
        else:
            hurt[offset] ^= 0xFF

        readings, (trouble,) = night.read_of(*night.blocks[:2], hurt, *night.blocks[3:])

        assert readings == READINGS[:6] + READINGS[11:]
        assert trouble.startswith("1 block ")

    def test_may_have_other_bytes_between_blocks(self, night: Night) -> None:
        anything = os.urandom(3_000_000)

        assert night.read_of(*night.blocks[:3], anything, MAGIC, *night.blocks[3:]) == (
            READINGS,
            (),
        )

    def test_ends_after_many_false_block_starts(self, night: Night) -> None:
        false = MAGIC + (1 << 20).to_bytes(4, "little")

        readings, (trouble,) = night.read_of(night.blocks[0], false * 50_000)

        assert readings == READINGS[:1]
        assert "1 reading " in trouble


class TestAnotherFile:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"", "is empty"),
            (b"index, utilization.gpu [%]\n0, 97 %\n", "not a recording"),
            (gzip.compress(b"index\n"), "not a recording"),
            (bytes(range(256)) * 40, "not a recording"),
            (MAGIC, "its start"),
            (pack_block(b'{"block":0}\n'), "no header"),
            (pack_block(b'{"schema":"gpumon.recording/7"}\n'), r"schema gpumon\.recording/7"),
            (pack_block(b'{"schema":"gpumon.report/1"}\n'), "the header of something else"),
        ],
        ids=["empty", "log", "packed log", "binary", "magic", "headless", "newer", "report"],
    )
    def test_is_refused_by_its_content(self, tmp_path: Path, content: bytes, expected: str) -> None:
        path = tmp_path / "some.gpumon"
        path.write_bytes(content)

        with pytest.raises(UnreadableLogError, match=expected) as refusal:
            RecordingFile(path)
        assert str(refusal.value).startswith(str(path))

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("none.gpumon", "No such file"),
            (".", "is a directory"),
            ("pipe", "not a regular file"),
            ("bad\0name", "null byte"),
        ],
    )
    def test_is_refused_by_its_path(self, tmp_path: Path, name: str, expected: str) -> None:
        os.mkfifo(tmp_path / "pipe")

        with pytest.raises(UnreadableLogError, match=expected):
            RecordingFile(f"{tmp_path}/{name}")


def test_runs_continue_after_a_missing_block(tmp_path: Path) -> None:
    recorded = list(training_readings(seed=5, seconds=30))
    night = Night(tmp_path / "training", recorded)

    readings, _ = night.read_of(*night.blocks[:2], *night.blocks[3:])

    assert {ring.key for one in readings for ring in one.rings.rings} == {
        ring.key for one in recorded for ring in one.rings.rings
    }

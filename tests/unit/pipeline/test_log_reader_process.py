"""Specification of the second process: it changes nothing but the time it takes."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpumon.errors import UnreadableLogError
from gpumon.pipeline import log_reader_process
from gpumon.pipeline.log_reader_process import ReaderProcess, is_worth_a_process
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import RowColumns
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import NO_OPTIONS, read_file, smi_log

BUSY_THEN_NOT = [97, 97, 97, 0, 50] * 4_000
PACKED = gzip.compress(smi_log([at * 7919 % 101 for at in range(20_000)]).encode())
LOGS = {
    "whole": smi_log(BUSY_THEN_NOT).encode(),
    "cut short": PACKED[: len(PACKED) // 2],
    "of several headers": smi_log(BUSY_THEN_NOT).encode() + smi_log([97]).encode() + b"no, row\n",
}


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    in_two_processes(monkeypatch)


def in_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader_process, "WORTH_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_a_log_says_the_same_in_two_processes_as_in_one(
    log: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpu.csv"
    path.write_bytes(log)
    alone = read_file(str(path), NO_OPTIONS)
    in_two_processes(monkeypatch)

    beside = read_file(str(path), NO_OPTIONS)

    assert beside.report == alone.report
    assert str(beside.damage) == str(alone.damage)


@pytest.mark.usefixtures("two_processes")
class TestTheSecondProcess:
    def test_refuses_in_the_same_words(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text("time,util\n" + "1,97\n" * 3_000)

        before = psutil.Process().children()
        with pytest.raises(UnreadableLogError, match="time stands still"):
            read_file(str(path), NO_OPTIONS)
        assert psutil.Process().children() == before

    def test_that_is_killed_is_a_sentence(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(smi_log([97] * 20))

        message = "the process that reads it was killed"
        with (
            LogText(str(path)) as text,
            ReaderProcess(text, _Doomed(text)) as reader,
            pytest.raises(UnreadableLogError, match=message),
        ):
            list(reader.blocks())

    def test_ends_where_no_user_wants_its_rows(self, tmp_path: Path) -> None:
        path = tmp_path / "gpu.csv"
        path.write_bytes(LOGS["whole"])

        before = psutil.Process().children()
        with LogText(str(path)) as text:
            reader = reader_for(text.lines(), name="gpu.csv", options=NO_OPTIONS)
            with ReaderProcess(text, reader) as process:
                next(process.blocks())
        assert psutil.Process().children() == before


class _Doomed:
    """A reader that is killed in the middle of a block."""

    def __init__(self, text: LogText) -> None:
        self._reader = reader_for(text.lines(), name="gpu.csv", options=NO_OPTIONS)
        self.facts = self._reader.facts

    def blocks(self) -> Iterator[list[RowColumns]]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield []


def test_a_short_log_and_a_pipe_get_none(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    path.write_text(smi_log([97] * 20))
    with LogText(str(path)) as text:
        assert not is_worth_a_process(text)
    read, write = os.pipe()
    os.write(write, smi_log([97] * 20).encode())
    os.close(write)
    with LogText("-", os.fdopen(read, "rb")) as text:
        assert not is_worth_a_process(text)

"""Specification of the words that all examples take, and of batches read ahead."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.waiting import until
from trainer_hooks.examples.busy_spans import BusySpans
from trainer_hooks.examples.example_run import example_parser, read_ahead


def refused(capsys: pytest.CaptureFixture[str], spans: Path, *words: str) -> str:
    """The one sentence with which the words are refused."""
    with pytest.raises(SystemExit) as end:
        example_parser("An example.", workers="threads").parse_args(["--spans", str(spans), *words])
    assert end.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


class TestTheWordsOfAnExample:
    def test_have_sensible_defaults(self, tmp_path: Path) -> None:
        spans = tmp_path / "busy.jsonl"

        args = example_parser("", workers="threads").parse_args(["--spans", str(spans)])

        assert (args.spans, args.gpu, args.steps) == (spans, 0, 300)
        assert (args.workers, args.latency_ms) == (0, 12.0)

    @pytest.mark.parametrize("milliseconds", ["0", "0.25"])
    def test_may_have_their_sleeps_as_short_as_one_likes(
        self, milliseconds: str, tmp_path: Path
    ) -> None:
        words = ["--spans", str(tmp_path / "busy.jsonl"), "--latency-ms", milliseconds]

        args = example_parser("", workers="threads").parse_args(words)

        assert args.latency_ms == float(milliseconds)

    def test_know_how_many_gpus_there_can_be(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "64" in refused(capsys, tmp_path / "busy.jsonl", "--gpu=64")

    def test_name_a_file_that_can_be_written(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sentence = refused(capsys, tmp_path / "nowhere" / "busy.jsonl")

        assert f"--spans: {tmp_path / 'nowhere' / 'busy.jsonl'} cannot" in sentence

    def test_leave_the_spans_that_a_file_has(self, tmp_path: Path) -> None:
        spans = tmp_path / "busy.jsonl"
        spans.write_text("{}\n")

        example_parser("", workers="threads").parse_args(["--spans", str(spans)])

        assert spans.read_text() == "{}\n"


class TestReadingAhead:
    @pytest.mark.parametrize("workers", [1, 3, 8])
    def test_gives_what_reading_in_turn_gives(self, workers: int) -> None:
        assert list(read_ahead(lambda k: k * k, batches=7, workers=workers)) == [
            k * k for k in range(7)
        ]

    def test_reads_two_batches_a_worker_ahead_and_no_more(self) -> None:
        asked: list[int] = []
        batches = read_ahead(asked.append, batches=100, workers=2)

        next(batches)

        assert until(lambda: len(asked) == 5)
        assert not until(lambda: len(asked) > 5, 0.1)
        assert len(list(batches)) == 99

    @pytest.mark.parametrize("workers", [0, 2])
    def test_raises_what_reading_raises_in_the_place_of_its_batch(self, workers: int) -> None:
        def read(number: int) -> int:
            if number == 3:
                raise OSError("gone")
            return number

        batches = read_ahead(read, batches=7, workers=workers)

        assert list(islice(batches, 3)) == [0, 1, 2]
        with pytest.raises(OSError, match="gone"):
            next(batches)


class TestADevice:
    def test_is_busy_for_as_long_as_it_is_recorded_and_no_longer(self, tmp_path: Path) -> None:
        with BusySpans(tmp_path / "spans") as spans:
            spans.sleep(0.002)
            spans.sleep(0.003)

        assert spans.busy_ns == 5_000_000
        assert len((tmp_path / "spans").read_text().splitlines()) == 2

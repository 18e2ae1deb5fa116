"""Specification of nvidia-smi pmon: a GPU is as busy as its processes together."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from tests.builders_logs import read_log, rows

U = ("# gpu pid type sm mem enc dec command", "# Idx # C/G % % % % name")
T = ("#Time gpu pid type sm mem enc dec fb command", "#HH:MM:SS Idx # C/G % % % % MB name")


def told(*lines: str) -> list[tuple[int, float | None]]:
    samples, _ = read_log(rows(*lines))
    return [(sample.gpu, sample.busy_ratio) for sample in samples]


class TestATick:
    def test_is_the_sum_over_the_processes_of_a_gpu(self) -> None:
        assert told(*U, "0 11 C 40 1 - - python", "0 12 C 25 1 - - python -m x", "1 13 C 7 1 - - a"
                    ) == [(0, pytest.approx(0.65)), (1, 0.07)]  # fmt: skip

    def test_is_at_most_the_whole_time(self) -> None:
        assert told(*U, "0 11 C 80 1 - - a", "0 12 C 70 1 - - b") == [(0, 1.0)]

    def test_begins_anew_where_a_process_comes_up_again(self) -> None:
        assert told(*U, "0 11 C 80 1 - - a", "0 11 C 70 1 - - a", "0 12 C 5 1 - - b") == [
            (0, 0.8), (0, pytest.approx(0.75))
        ]  # fmt: skip

    def test_is_idle_where_a_gpu_has_no_process(self) -> None:
        assert told(*U, "0 - - - - - - -", "0 11 C 70 1 - - a", "0 - - - - - - -") == [
            (0, 0.0), (0, 0.7), (0, 0.0)
        ]  # fmt: skip

    def test_is_idle_where_no_process_did_anything_and_the_gpu_can_tell(self) -> None:
        assert told(*U, "0 11 C 70 1 - - a", "0 11 C - - - - a") == [(0, 0.7), (0, 0.0)]

    def test_has_no_answer_as_long_as_the_gpu_never_told_one(self) -> None:
        lines = (*U, "0 11 C - - - - a", "0 11 C 70 1 - - a")

        assert told(*lines) == [(0, None), (0, 0.7)]
        assert read_log(rows(*lines))[1].skipped_lines == 1

    @pytest.mark.parametrize("bad", ["0 12", "9999999 12 C 30 1 - - b", "0 12 C 3x 1 - - b"])
    def test_is_not_known_where_one_of_its_rows_cannot_be_used(self, bad: str) -> None:
        found = told(*U, "0 11 C 10 1 - - a", bad, "0 11 C 70 1 - - a", "0 11 C 71 1 - - a")

        assert found[0] == (0, None)
        assert found[-1] == (0, 0.71)

    def test_ends_with_its_second(self) -> None:
        samples, _ = read_log(
            rows(*T, "10:00:00 0 11 C 10 1 - - 500 a", "10:00:00 0 12 C 20 1 - - 700 b",
                 "10:00:01 0 13 C 30 1 - - 900 c")
        )  # fmt: skip

        assert [sample.busy_ratio for sample in samples] == [pytest.approx(0.3), 0.3]
        assert [sample.memory_used_bytes for sample in samples] == [1200 << 20, 900 << 20]


class TestTheLog:
    def test_says_that_it_knows_of_processes_only(self) -> None:
        _, facts = read_log(rows(*U, "0 11 C 10 1 - - a"))

        assert any("sum over its processes" in note for note in facts.notes)

    def test_of_memory_only_says_what_to_log(self) -> None:
        with pytest.raises(UnreadableLogError, match="in the column sm, with -s u"):
            read_log(rows("# gpu pid type fb command", "0 11 C 500 a"))

    def test_without_a_header_is_refused_and_not_guessed_at(self) -> None:
        with pytest.raises(UnreadableLogError, match="before a header"):
            read_log(rows("0, 11, C, 45, 3, -, -, python", "0, 11, C, 46, 3, -, -, python"))


class TestATickWithoutEnd:
    def test_takes_no_more_memory_than_a_machine_has_processes(self) -> None:
        log = rows(*U, *(f"0 {pid} C 1 1 - - a" for pid in range(20_000)), *["0 - - - - - - -"] * 2)

        samples, facts = read_log(log)

        assert [sample.busy_ratio for sample in samples] == [None, None, 0.0]
        assert facts.skipped_lines == 20_000 - 16_384

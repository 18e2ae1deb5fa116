"""Specification of what ``gpumon analyze --follow`` refuses, and of the line of a live input."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpumon.cli.live_line import so_far
from gpumon.errors import UnreadableLogError
from gpumon.sources.live_input import LiveReading
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import analysed, at_work, csv, smi_log
from tests.command_line import Shell


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpu.csv", "other.csv"], "--follow reads one log until Ctrl-C: name one FILE"),
        (["-"], "--follow is for a file; the standard input is read until it ends anyway"),
    ],
    ids=["several logs", "standard input"],
)
def test_following_what_cannot_be_followed_is_refused(
    words: list[str], said: str, gpumon: Shell
) -> None:
    ended = gpumon("analyze", "--follow", *words)

    assert (ended.code, ended.err) == (2, f"gpumon: {said}\n")


def test_a_packed_file_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv.gz"
    path.write_bytes(gzip.compress(smi_log([97] * 20).encode()))

    with pytest.raises(UnreadableLogError, match="is packed, and a packed file does not grow"):
        LogText(str(path), live=LiveReading(), follows=True)


class TestTheLine:
    def test_says_what_came_so_far(self) -> None:
        report = analysed(smi_log([97] * 30 + [0] * 10 + [100] * 20))

        assert so_far(report, 60, [1.0], 0.4) == (
            "60 rows, 60 s; busy now: GPU 0 100 %; lost so far 10.9 s, 18 % of the time in use; "
            "Ctrl-C ends it with the report"
        )

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            (
                120,
                "60 rows, 60 s; busy now: GPU 0 100 %; lost so far 10.9 s, 18 % of the time in "
                "use; Ctrl-C ends it with the report",
            ),
            (78, "60 rows, 60 s; busy now: GPU 0 100 %; lost 10.9 s (18 %); Ctrl-C: report"),
            (60, "60 s; busy now: 100 %; lost 10.9 s (18 %); Ctrl-C: report"),
            (40, "busy now: 100 %; lost 10.9 s (18 %)"),
            (9, "busy now: 100 %; lost 10.9 s (18 %)"),
        ],
    )
    def test_is_shorter_where_the_terminal_is_narrow(self, columns: int, said: str) -> None:
        report = analysed(smi_log([97] * 30 + [0] * 10 + [100] * 20))

        assert so_far(report, 60, [1.0], 0.4, columns) == said

    def test_has_the_mean_of_several_gpus_where_the_terminal_is_narrow(self) -> None:
        report = analysed(csv(at_work(60, 2)))

        assert so_far(report, 120, [1.0, 0.5], 0.4, 60) == (
            "60 s; busy now: 75 %; lost 3.6 s (3.0 %); Ctrl-C: report"
        )

    def test_says_that_nothing_was_in_use(self) -> None:
        assert "busy now: GPU 0 0 %; nothing in use yet;" in so_far(
            analysed(smi_log([0] * 30)), 30, [0.0], 0.4
        )

    @pytest.mark.parametrize(
        ("period_s", "silent_s", "said"),
        [
            (1, 2.9, "busy now: GPU 0 97 %"), (1, 12.4, "nothing new for 12 s"),
            (0.2, 2.9, "busy now: GPU 0 97 %"), (0.2, 3.1, "nothing new for 3.1 s"),
            (30, 89, "busy now: GPU 0 97 %"), (30, 600, "nothing new for 10 min"),
        ],
    )  # fmt: skip
    def test_says_nothing_of_now_where_nothing_came_for_a_few_rows(
        self, period_s: float, silent_s: float, said: str
    ) -> None:
        line = so_far(analysed(smi_log([97] * 60, period_s)), 60, [0.97], silent_s)

        assert f"; {said}; lost so far" in line
        assert ("busy now" in line) is ("busy now" in said)

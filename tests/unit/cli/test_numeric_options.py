"""Tests of every numeric option: nonsense is refused with one sentence and exit code 2."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli.analyze import column_argument
from gpumon.cli.main import build_parser
from gpumon.cli.open_source import check_source_word
from gpumon.outlets.http.callers import read_token
from trainer_hooks.examples.example_run import example_parser, writable
from trainer_hooks.trainer_bench import main as trainer_bench

COMMANDS = ("serve", "analyze", "report", "demo", "doctor", "record", "replay", "dstat")
NONSENSE = ("nan", "inf", "-inf", "-1", "0", "1e308", "1" + 400 * "0", "", "x")
OF_WORDS = {Path, column_argument, writable, trainer_bench._gpu, check_source_word, read_token}
"""Types of options that are not numeric."""
WORDS = {"--listen", "--nvml-off", "--nvml-on"}
"""Options whose types are lambdas."""
ZERO_IS_VALID = {
    ("report", "--fail-if-starved-above"), ("report", "--fail-if-lost-above"),
    ("trainer-bench", "--margin"), ("example", "--gpu"), ("example", "--workers"),
    ("example", "--latency-ms"),
}  # fmt: skip


def parsers() -> dict[str, argparse.ArgumentParser]:
    return {
        "gpumon": build_parser(COMMANDS),
        "trainer-bench": trainer_bench._parser(),
        "example": example_parser(None, workers="threads"),
    }


def options(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.Action]]:
    """Every option of a parser and its subcommands, with the command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, within in action.choices.items():
                yield from options(within, word)
        elif action.option_strings:
            yield name, action


NUMERIC = [
    (parser, name, action.option_strings[-1])
    for parser, one in parsers().items()
    for name, action in options(one, parser)
    if action.type is not None
    and action.type not in OF_WORDS
    and WORDS.isdisjoint(action.option_strings)
]
REFUSED = [
    pytest.param(*one, word, id=f"{one[1]} {one[2]} {word[:9] or 'empty'}")
    for one in NUMERIC
    for word in NONSENSE
    if word != "0" or one[1:] not in ZERO_IS_VALID
]


def test_numeric_options_are_found() -> None:
    found = {(name, option) for _, name, option in NUMERIC}

    assert {("serve", "--period"), ("trainer-bench", "--runs"), ("example", "--steps")} <= found


@pytest.mark.parametrize(("parser", "name", "option", "word"), REFUSED)
def test_nonsense_is_refused_in_one_sentence(
    parser: str, name: str, option: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [name] if parser == "gpumon" else []

    with pytest.raises(SystemExit) as raised:
        parsers()[parser].parse_args([*words, f"{option}={word}"])

    assert raised.value.code == 2
    lines = capsys.readouterr().err.partition("error: ")[2].splitlines()
    assert lines[0].startswith(f"argument {option}: ")
    assert lines[1:2] in ([], ["example:"])
    assert "invalid _" not in lines[0]  # a private name


class TestThePeriodOfALiveSource:
    @pytest.mark.parametrize("words", [["serve"], ["record", "new"]], ids=" ".join)
    @pytest.mark.parametrize("seconds", ["10.001", "14", "30", "3600"])
    def test_is_refused_if_the_driver_might_lose_samples(
        self, words: list[str], seconds: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            parsers()["gpumon"].parse_args([*words, "--period", seconds])

        assert raised.value.code == 2
        assert (
            f"argument --period: must be between 0.05 and 10 seconds, got {seconds}: NVIDIA "
            "drivers keep about 14 s of samples, so a longer period would lose some"
        ) in capsys.readouterr().err

    @pytest.mark.parametrize("words", [["serve"], ["record", "new"]], ids=" ".join)
    @pytest.mark.parametrize("seconds", ["0.05", "1", "10"])
    def test_may_be_up_to_ten_seconds(self, words: list[str], seconds: str) -> None:
        args = parsers()["gpumon"].parse_args([*words, "--period", seconds])

        assert args.period == float(seconds)

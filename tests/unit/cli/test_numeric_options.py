"""Tests of every numeric option: nonsense is refused with one sentence and exit code 2."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli.analyze import column_argument
from gpumon.cli.main import build_parser
from gpumon.cli.source_option import check_source
from gpumon.cli.stacks_option import user_argument
from gpumon.outlets.http.clients import read_token
from trainer_hooks.examples.example_run import example_parser, writable
from trainer_hooks.trainer_bench import main as trainer_bench

COMMANDS = (
    "serve",
    "analyze",
    "why",
    "report",
    "run",
    "demo",
    "doctor",
    "record",
    "replay",
    "dstat",
)
NONSENSE = ("nan", "inf", "-inf", "-1", "0", "1e308", "1" + 400 * "0", "", "x")
OTHER_TYPES = {
    Path, column_argument, writable, trainer_bench._gpu, check_source, read_token, user_argument,
}  # fmt: skip
"""Types of options that are not numeric."""
WORDS = {"--listen", "--nvml-off", "--nvml-on"}
"""Options whose types are lambdas."""
ZERO_IS_VALID = {
    ("report", "--fail-if-starved-above"), ("report", "--fail-if-lost-above"),
    ("report", "--price"), ("report", "--price-kwh"),
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
    and action.type not in OTHER_TYPES
    and WORDS.isdisjoint(action.option_strings)
]
REFUSED = [
    pytest.param(*one, word, id=f"{one[1]} {one[2]} {word[:9] or 'empty'}")
    for one in NUMERIC
    for word in NONSENSE
    if word != "0" or one[1:] not in ZERO_IS_VALID
]


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


@pytest.mark.parametrize("words", [["serve"], ["record", "new"]], ids=" ".join)
def test_the_period_of_a_live_source_is_at_most_ten_seconds(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parsers()["gpumon"]
    assert parser.parse_args([*words, "--period", "10"]).period == 10.0

    with pytest.raises(SystemExit):
        parser.parse_args([*words, "--period", "10.001"])
    assert (
        "argument --period: must be between 0.05 and 10 seconds, got 10.001: NVIDIA "
        "drivers keep about 14 s of samples, so a longer period would lose some"
    ) in capsys.readouterr().err

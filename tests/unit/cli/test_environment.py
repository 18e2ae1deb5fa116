"""Specification of options that are variables: the same values, the same sentences.

The sentences are in ``tests/golden``.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from gpumon.cli.environment import OTHER_VARIABLES, CommandParser, misspelt_variables, variable_of
from gpumon.cli.main import build_parser
from gpumon.errors import UsageError
from tests.command_line import Shell

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def serve_parser() -> CommandParser:
    return build_parser(["serve"]).commands["serve"]


def parsed(words: list[str], **environ: str) -> argparse.Namespace:
    parser = serve_parser()
    return parser.parse_args([*parser.words_of(environ, words), *words])


class TestAVariable:
    def test_says_what_its_option_would(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("0123456789abcdef")
        token.chmod(0o600)

        args = parsed(
            [],
            GPUMON_SOURCE="simulated:healthy",
            GPUMON_LISTEN="127.0.0.1:1, [::1]:2  10.0.0.5:3",
            GPUMON_PERIOD="0.5",
            GPUMON_WAIT_FOR_SOURCE="Yes",
            GPUMON_NVML_OFF="power,ecc",
            GPUMON_NVML_ON="fan",
            GPUMON_WEB_TOKEN_FILE=str(token),
        )

        assert args.source == "simulated:healthy"
        assert args.listen == ["127.0.0.1:1", "[::1]:2", "10.0.0.5:3"]
        assert args.period == 0.5
        assert args.wait_for_source is True
        assert (args.nvml_off, args.nvml_on) == (["power", "ecc"], ["fan"])
        assert args.token.is_shown("Bearer 0123456789abcdef")

    def test_leaves_complaints_about_the_command_line_as_they_are(
        self, gpumon: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GPUMON_PERIOD", "0.5")

        ended = gpumon("serve", "--period", "soon")

        assert ended.code == 2
        assert "error: argument --period" in ended.err

    def test_that_is_empty_or_not_there_says_nothing(self) -> None:
        nothing = {variable_of(option): " " for option in serve_parser().options}

        assert vars(parsed([])).keys() == vars(parsed([], **nothing)).keys()
        assert serve_parser().words_of(nothing, []) == []

    def test_says_nothing_where_the_command_line_does(self) -> None:
        args = parsed(
            ["--listen", "127.0.0.1:9", "--period=2", "--nvml-on", "fan"],
            GPUMON_LISTEN="0.0.0.0:1",
            GPUMON_PERIOD="0.5",
            GPUMON_NVML_ON="pcie",
            GPUMON_SOURCE="simulated:flat",
        )

        assert (args.listen, args.period, args.nvml_on) == (["127.0.0.1:9"], 2.0, ["fan"])
        assert args.source == "simulated:flat"

    @pytest.mark.parametrize(
        ("text", "meant"),
        [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False), ("Off", False)],
    )
    def test_of_a_switch_is_a_yes_or_a_no(self, text: str, meant: bool) -> None:
        assert parsed([], GPUMON_WAIT_FOR_SOURCE=text).wait_for_source is meant


class TestEachOption:
    @pytest.mark.parametrize("option", serve_parser().options, ids=variable_of)
    def test_has_a_variable_that_means_nothing_else(self, option: argparse.Action) -> None:
        assert variable_of(option) not in OTHER_VARIABLES

    def test_names_it_in_the_help(self, gpumon: Shell) -> None:
        said = " ".join(gpumon("serve", "--help").out.split())

        for option in serve_parser().options:
            assert f"[{variable_of(option)}]" in said
        assert "SUPPRESS" not in said

    def test_is_in_the_page_with_its_variable_and_default(self) -> None:
        rows = re.findall(
            r"^\| `(--[a-z-]+)[^|]*\| `(GPUMON_\w+)` \|(?:[^|]*)\| ([^|]*) \|$",
            PAGE.read_text(),
            re.MULTILINE,
        )

        told = {option: (variable, default) for option, variable, default in rows}
        assert told.keys() == {option.option_strings[-1] for option in serve_parser().options}
        for option in serve_parser().options:
            variable, default = told[option.option_strings[-1]]
            assert variable == variable_of(option)
            if option.default:
                assert str(option.default) in (default.strip("`"), f"{default}.0")


class TestAMisspeltVariable:
    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("GPUMON_LISTNE", "GPUMON_LISTEN"),
            ("GPUMON_WAIT_FOR_SOURCES", "GPUMON_WAIT_FOR_SOURCE"),
            ("GPUMON_PERIODS", "GPUMON_PERIOD"),
            ("GPUMON_TOKEN_FILE", "GPUMON_WEB_TOKEN_FILE"),
        ],
    )
    def test_is_told_with_the_one_that_was_meant(self, name: str, meant: str) -> None:
        (said,) = misspelt_variables(serve_parser(), {name: "x"})

        assert re.findall(r"GPUMON_\w+", said) == [name, meant]

    @pytest.mark.parametrize(
        "name",
        [*sorted(OTHER_VARIABLES), "GPUMON_LISTEN", "GPUMON_SERVICE_HOST", "GPUMON_PORT",
         "GPUMON_PORT_19835_TCP", "LISTEN", "GPUMON_UPDATE_GOLDEN"],
    )  # fmt: skip
    def test_is_none_of_those_that_somebody_reads_or_that_are_like_nothing(self, name: str) -> None:
        assert [*misspelt_variables(serve_parser(), {name: "x"})] == []


def test_other_commands_have_no_variables(monkeypatch: pytest.MonkeyPatch, gpumon: Shell) -> None:
    monkeypatch.setenv("GPUMON_SOURCE", "lunch")

    with pytest.raises(UsageError):
        serve_parser().words_of({"GPUMON_SOURCE": "lunch"}, [])
    assert gpumon("doctor", "--source", "simulated:healthy", "--json").code == 0

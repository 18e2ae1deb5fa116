"""Tests of options as environment variables. Their messages are in ``tests/golden``."""

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


def parsed(arguments: list[str], **environ: str) -> argparse.Namespace:
    parser = serve_parser()
    return parser.parse_args([*parser.arguments_of(environ, arguments), *arguments])


class TestAVariable:
    def test_has_the_effect_of_its_option(self, tmp_path: Path) -> None:
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

    def test_has_no_effect_if_it_is_empty(self) -> None:
        nothing = {variable_of(option): " " for option in serve_parser().options}

        assert vars(parsed([])).keys() == vars(parsed([], **nothing)).keys()
        assert serve_parser().arguments_of(nothing, []) == []

    def test_has_no_effect_if_the_command_line_has_the_option(self) -> None:
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
        [("TRUE", True), ("on", True), ("0", False), ("Off", False)],
    )
    def test_of_a_switch_may_be_yes_or_no(self, text: str, meant: bool) -> None:
        assert parsed([], GPUMON_WAIT_FOR_SOURCE=text).wait_for_source is meant


class TestEachOption:
    def test_has_its_variable_in_the_help(self, gpumon: Shell) -> None:
        text = " ".join(gpumon("serve", "--help").out.split())

        for option in serve_parser().options:
            assert f"[{variable_of(option)}]" in text
        assert "SUPPRESS" not in text

    def test_is_documented_with_its_variable_and_default(self) -> None:
        rows = re.findall(
            r"^\| `(--[a-z-]+)[^|]*\| `(GPUMON_\w+)` \|(?:[^|]*)\| ([^|]*) \|$",
            PAGE.read_text(),
            re.MULTILINE,
        )

        documented = {option: (variable, default) for option, variable, default in rows}
        assert documented.keys() == {option.option_strings[-1] for option in serve_parser().options}
        for option in serve_parser().options:
            variable, default = documented[option.option_strings[-1]]
            assert variable == variable_of(option)
            if option.default:
                assert str(option.default) in (default.strip("`"), f"{default}.0")


class TestAnUnknownVariable:
    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("GPUMON_LISTNE", "GPUMON_LISTEN"),
            ("GPUMON_TOKEN_FILE", "GPUMON_WEB_TOKEN_FILE"),
        ],
    )
    def test_gets_a_suggestion(self, name: str, meant: str) -> None:
        (message,) = misspelt_variables(serve_parser(), {name: "x"})

        assert re.findall(r"GPUMON_\w+", message) == [name, meant]

    @pytest.mark.parametrize(
        "name",
        [*sorted(OTHER_VARIABLES), "GPUMON_LISTEN", "GPUMON_SERVICE_HOST", "GPUMON_PORT", "LISTEN"],
    )  # fmt: skip
    def test_is_ignored_if_it_is_known_or_similar_to_none(self, name: str) -> None:
        assert [*misspelt_variables(serve_parser(), {name: "x"})] == []


def test_other_commands_have_no_variables(monkeypatch: pytest.MonkeyPatch, gpumon: Shell) -> None:
    monkeypatch.setenv("GPUMON_SOURCE", "lunch")

    with pytest.raises(UsageError):
        serve_parser().arguments_of({"GPUMON_SOURCE": "lunch"}, [])
    assert gpumon("doctor", "--source", "simulated:healthy", "--json").code == 0

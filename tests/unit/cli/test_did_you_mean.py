"""What is offered instead exists. The sentences are in ``tests/golden``."""

from __future__ import annotations

import re

import pytest

from gpumon.cli.did_you_mean import _COMMANDS_ELSEWHERE, _OPTIONS_ELSEWHERE, _SAME_OPTION
from gpumon.cli.main import build_parser
from tests.command_line import Shell

OPTIONS = {name: parser.option_names for name, parser in build_parser().commands.items()}


class TestEachCommandOfOtherTools:
    @pytest.mark.parametrize("name", _COMMANDS_ELSEWHERE)
    def test_is_none_of_gpumon(self, name: str) -> None:
        assert name not in OPTIONS

    @pytest.mark.parametrize("meant", sorted({*_COMMANDS_ELSEWHERE.values()}))
    def test_has_one_that_exists(self, gpumon: Shell, meant: str) -> None:
        command, *words = meant.split()

        if command in OPTIONS:
            assert [word for word in words if word.startswith("--")] == [
                word for word in words if word in OPTIONS[command]
            ]
        else:
            assert gpumon(command).code == 0


class TestEachOptionOfOtherTools:
    @pytest.mark.parametrize("place", _OPTIONS_ELSEWHERE)
    def test_is_none_of_its_command_which_has_what_is_offered(self, place: str) -> None:
        command, option = place.split()
        offered = re.sub(r"gpumon why --gpu|gpumon run --", "", _OPTIONS_ELSEWHERE[place])

        assert option not in OPTIONS[command]
        assert {*re.findall(r"--[a-z][a-z-]*", offered)} <= {*OPTIONS[command]}

    @pytest.mark.parametrize("option", sorted({*_SAME_OPTION.values()}))
    def test_is_answered_by_some_command(self, option: str) -> None:
        assert [place for place in _OPTIONS_ELSEWHERE if place.endswith(f" {option}")]

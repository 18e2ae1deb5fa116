"""The Containerfile, without a builder: what it copies exists, and what it starts is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gpumon.cli.environment import OTHER_VARIABLES, variable_of
from gpumon.cli.main import build_parser
from tests.programs import ROOT

TEXT = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
LINES = TEXT.replace("\\\n", " ").splitlines()
COPIED = [
    name
    for line in LINES
    if line.startswith("COPY ") and "--from" not in line
    for name in line.split()[1:-1]
]


def argument_of(instruction: str) -> Any:
    """The JSON argument of the one line with this instruction."""
    (line,) = (line for line in LINES if line.startswith(f"{instruction} ["))
    return json.loads(line.removeprefix(f"{instruction} "))


class TestWhatItCopies:
    def test_exists(self) -> None:
        assert COPIED
        assert [name for name in COPIED if not (ROOT / name).exists()] == []

    def test_is_all_that_the_package_is_built_from(self) -> None:
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        packages = re.findall(r'"(\w+)\*"', project.partition("\ninclude = ")[2].splitlines()[0])
        folders = re.findall(r'^"share/.*\["(\w+)/', project, re.MULTILINE)
        (readme,) = re.findall(r'^readme = "(.*)"', project, re.MULTILINE)
        (licences,) = re.findall(r'^license-files = \["(.*)"\]', project, re.MULTILINE)

        assert len(packages) == 2
        assert {*packages, *folders, readme, licences} <= {Path(name).parts[0] for name in COPIED}


class TestWhatItStarts:
    def test_is_a_command_with_options_that_exist(self) -> None:
        command, *options = argument_of("CMD")

        parser = build_parser([command])

        assert parser.parse_args([command, *options]).wait_for_source

    def test_has_variables_that_exist(self) -> None:
        options = {
            variable_of(option) for option in build_parser(["serve"]).commands["serve"].options
        }

        assert {*re.findall(r"GPUMON_\w+", TEXT)} <= {*options, *OTHER_VARIABLES}

    def test_is_asked_for_its_health_where_it_listens(self) -> None:
        listens = build_parser(["serve"]).parse_args(["serve"]).listen or ["127.0.0.1:19835"]

        assert f"http://{listens[0]}/-/healthy" in TEXT
        assert f"EXPOSE {listens[0].rpartition(':')[2]}" in LINES

"""Specification of --nvml-off and --nvml-on: which fields the driver is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.cli import serve
from gpumon.cli.main import build_parser, main
from gpumon.cli.open_source import nvml_options_of, open_source
from gpumon.sources.nvml.fields.table import (
    DEFAULT_OPTIONS,
    NVML_FIELDS,
    NvmlOptions,
    nvml_options,
)
from gpumon.sources.system_clock import SystemClock
from tests.fakenvml.control import FakeNvml

ROOT = Path(__file__).resolve().parents[3]


def options_of(*words: str) -> NvmlOptions:
    parser = build_parser(["serve"])
    return nvml_options_of(parser.parse_args(["serve", *words]))


class TestTheOptions:
    def test_may_be_left_out(self) -> None:
        assert options_of() == DEFAULT_OPTIONS
        assert options_of("--source", "simulated:healthy") == DEFAULT_OPTIONS

    @pytest.mark.parametrize(
        "words",
        [
            ["--nvml-off", "memory", "ecc"],
            ["--nvml-off", "memory", "--nvml-off", "ecc"],
            ["--nvml-off", "memory,ecc"],
            ["--nvml-off", "memory,", "ecc,"],
        ],
        ids=["words", "said twice", "commas", "both"],
    )
    def test_take_one_field_or_several_in_any_form(self, words: list[str]) -> None:
        assert options_of(*words) == nvml_options(off=["memory", "ecc"])

    def test_add_and_take_away_at_once(self) -> None:
        options = options_of("--nvml-on", "fan", "pcie", "--nvml-off", "processes")

        assert options == nvml_options(on=["fan", "pcie"], off=["processes"])

    def test_are_explained_with_every_field_that_they_take(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            main(["serve", "--help"])

        help_text = capsys.readouterr().out
        off, on = help_text.partition("--nvml-off FIELD [FIELD ...]\n")[2].split("--nvml-on FIELD")
        for field in NVML_FIELDS:
            listed = on if field.opt_in else off
            assert (field.name in listed) == (field.name != "utilization")

    def test_are_documented_field_by_field(self) -> None:
        document = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
        rows = [line for line in document.splitlines() if line.startswith("| `")]

        for field in NVML_FIELDS:
            (row,) = [row for row in rows if f"`{field.name}`" in row.split("|")[1]]
            assert ("only with `--nvml-on`" in row) == field.opt_in
            every = {0.0: "each tick", None: "as they happen"}.get(field.period_s)
            assert (every or f"{field.period_s:g} s") in row


class TestWordsThatMakeNoSense:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--nvml-off", "fan", "speed"], "no NVML field called 'speed': choose from"),
            (["--nvml-off", "utilization"], "utilization cannot be switched off"),
            (["--nvml-on", "fan", "--nvml-off", "fan"], "fan is switched both on and off"),
            (
                ["--nvml-on", "fan", "--source", "simulated:healthy"],
                "--nvml-on is for --source nvml: simulated:healthy does not ask the driver",
            ),
        ],
        ids=["an unknown field", "the one that stays", "both ways", "another source"],
    )
    def test_are_refused_with_one_sentence_and_exit_2(
        self, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["serve", *words]) == 2

        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1


class TestTheFields:
    def test_reach_the_driver(self, fake_nvml: FakeNvml) -> None:
        source = open_source("nvml", SystemClock(), options_of("--nvml-on", "fan"))
        source.read()
        source.close()

        assert fake_nvml.calls("nvmlDeviceGetFanSpeed") == 2

    def test_reach_the_daemon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        handed: list[object] = []

        class Recorded:
            def __init__(self, source: str, *, nvml: NvmlOptions, **others: object) -> None:
                handed.append(nvml)

            def run(self) -> None: ...

            def stop(self) -> None: ...

        monkeypatch.setattr(serve, "Daemon", Recorded)
        monkeypatch.setattr("signal.signal", lambda *_: None)

        assert main(["serve", "--nvml-on", "fan", "--nvml-off", "energy"]) == 0
        assert handed == [nvml_options(on=["fan"], off=["energy"])]

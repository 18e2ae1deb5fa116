"""Tests of --nvml-off and --nvml-on. Their refusals are in ``tests/golden``."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.cli import serve
from gpumon.cli.main import build_parser
from gpumon.cli.source_option import nvml_options_of, open_source
from gpumon.sources.nvml.fields.table import (
    DEFAULT_OPTIONS,
    NVML_FIELDS,
    NvmlOptions,
    nvml_options,
)
from gpumon.sources.system_clock import SystemClock
from tests.command_line import Shell
from tests.fakenvml.control import FakeNvml

ROOT = Path(__file__).resolve().parents[3]


def options_of(words: str) -> NvmlOptions:
    return nvml_options_of(build_parser(["serve"]).parse_args(["serve", *words.split()]))


class TestTheOptions:
    @pytest.mark.parametrize(
        ("words", "options"),
        [
            ("", DEFAULT_OPTIONS),
            ("--nvml-off memory --nvml-off ecc", nvml_options(off=["memory", "ecc"])),
            ("--nvml-off memory, ecc,", nvml_options(off=["memory", "ecc"])),
            (
                "--nvml-on fan pcie --nvml-off processes",
                nvml_options(on=["fan", "pcie"], off=["processes"]),
            ),
        ],
    )
    def test_accept_fields_in_any_form(self, words: str, options: NvmlOptions) -> None:
        assert options_of(words) == options

    def test_are_documented(self) -> None:
        document = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
        rows = [line for line in document.splitlines() if line.startswith("| `")]

        for field in NVML_FIELDS:
            (row,) = [row for row in rows if f"`{field.name}`" in row.split("|")[1]]
            assert ("only with `--nvml-on`" in row) == field.opt_in
            every = {0.0: "each drain", None: "as they happen"}.get(field.period_s)
            assert (every or f"{field.period_s:g} s") in row


class TestTheFields:
    def test_reach_the_driver(self, fake_nvml: FakeNvml) -> None:
        source = open_source("nvml", SystemClock(), options_of("--nvml-on fan"))
        source.read()
        source.close()

        assert fake_nvml.calls("nvmlDeviceGetFanSpeed") == 2

    def test_reach_the_daemon(self, monkeypatch: pytest.MonkeyPatch, gpumon: Shell) -> None:
        handed: list[object] = []

        class Recorded:
            def __init__(self, source: str, *, nvml: NvmlOptions, **others: object) -> None:
                handed.append(nvml)

            def run(self) -> None: ...

            def stop(self) -> None: ...

            def keep_on_disk(self) -> None: ...

        monkeypatch.setattr(serve, "Daemon", Recorded)
        monkeypatch.setattr("signal.signal", lambda *_: None)

        assert gpumon("serve", "--nvml-on", "fan", "--nvml-off", "energy").code == 0
        assert handed == [nvml_options(on=["fan"], off=["energy"])]

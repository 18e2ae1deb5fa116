"""Tests of the plugin inside dstat and dool."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.builders.dstat import PLUGIN, gpu, publish
from tests.hosts_of_dstat import RealHost, real_host

DRIVER = Path(__file__).with_name("exec_in_host.py")
STALL = PLUGIN.with_name("dstat_gpu_stall.py")
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@pytest.fixture(params=["dstat", "dool"])
def host(request: pytest.FixtureRequest) -> RealHost:
    return real_host(request.param)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DSTAT_GPU", "DSTAT_OPTS", "DOOL_OPTS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "runtime"


def shown_in(
    host: RealHost, runtime: Path, *options: str, file: Path = PLUGIN, **environ: str
) -> dict[str, Any]:
    """The plugin's output in this host, with a daemon's state in ``runtime``."""
    done = subprocess.run(
        [host.python, str(DRIVER), str(host.source), str(file), *options],
        env={**os.environ, "GPUMON_RUNTIME_DIR": str(runtime), **environ},
        cwd=runtime.parent,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # dstat prints a line about its defaults when it is imported.
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


class TestInsideEachHost:
    def test_header_and_row_have_the_reported_width(self, host: RealHost, runtime: Path) -> None:
        publish(runtime, gpu(0, busy_s=100), gpu(1, starved_s=30))

        shown = shown_in(host, runtime)

        lines = [ESCAPE.sub("", shown[line]) for line in ("title", "subtitle", "row")]
        assert [len(line) for line in lines] == [shown["width"]] * 3
        assert lines[1].split() == ["use", "mem", "strv:use", "mem", "strv"]
        assert re.split(r"[\s:]+", lines[2].strip()) == ["100", "50", "0", "0", "50", "30"]

    def test_header_row_and_file_have_the_main_cause(self, host: RealHost, runtime: Path) -> None:
        waited_s = {"gil_bound": 30}
        publish(runtime, gpu(0, busy_s=70, starved_s=30, waited_s=waited_s), gpu(1, present=False))

        shown = shown_in(host, runtime, file=STALL)

        lines = [ESCAPE.sub("", shown[line]) for line in ("title", "subtitle", "row")]
        assert [len(line) for line in lines] == [shown["width"]] * 3
        assert lines[1].split() == ["lost", "main", "cause", ":lost", "main", "cause"]
        assert lines[2].replace(":", " ").split() == ["30", "30", "input/gil", "-", "-", "-"]
        assert shown["csv_row"] == "30.000,30.000,input/gil,,,"

    def test_unknown_values_are_numbers_that_the_host_accepts(
        self, host: RealHost, runtime: Path
    ) -> None:
        publish(runtime, gpu(0, memory_used_bytes=None), gpu(1, present=False))

        values = shown_in(host, runtime)["values"]

        assert values == {"0": [0, -1, 0], "1": [-1, -1, -1]}

    def test_a_broken_state_file_gives_dashes(self, host: RealHost, runtime: Path) -> None:
        runtime.mkdir()
        os.mkfifo(runtime / "state.json")

        shown = shown_in(host, runtime)

        assert ESCAPE.sub("", shown["row"]).split() == ["-", "-", "-"]

    def test_the_file_has_as_many_cells_as_its_header(self, host: RealHost, runtime: Path) -> None:
        publish(runtime, gpu(0, busy_s=100), gpu(1, memory_used_bytes=None))

        shown = shown_in(host, runtime)

        assert shown["csv_header"] == ",".join(
            f'"{group}:{nick}"' for group in ("gpu0", "gpu1") for nick in ("use", "mem", "strv")
        )
        assert shown["csv_row"] == "100.000,50.000,0.000,0.000,,0.000"

    def test_no_name_is_added_to_the_host(self, host: RealHost, runtime: Path) -> None:
        publish(runtime, gpu())

        assert shown_in(host, runtime)["added"] == []

    def test_only_dstat_gets_the_types_that_its_csv_needs(
        self, host: RealHost, runtime: Path
    ) -> None:
        publish(runtime, gpu())

        added = shown_in(host, runtime, "--output", "x.csv")["added"]

        assert added == (["types"] if host.name == "dstat" else [])

    def test_the_selection_of_gpus_is_kept(self, host: RealHost, runtime: Path) -> None:
        publish(runtime, *(gpu(index) for index in range(4)))

        assert list(shown_in(host, runtime)["values"]) == ["total"]
        assert list(shown_in(host, runtime, "-f")["values"]) == ["0", "1", "2", "3"]
        assert list(shown_in(host, runtime, DSTAT_GPU="3,total")["values"]) == ["3", "total"]


class TestTheFile:
    def test_is_ascii(self) -> None:
        assert PLUGIN.read_bytes().isascii()

    def test_is_valid_in_python_3_6(self) -> None:
        parsed = ast.parse(PLUGIN.read_text(encoding="ascii"), feature_version=(3, 6))

        assert any(isinstance(node, ast.ClassDef) for node in parsed.body)

    def test_does_not_mention_a_variable_of_dool(self) -> None:
        assert b"DOOL_OPTS" not in PLUGIN.read_bytes()

    def test_is_the_same_for_both_hosts_and_both_options(self) -> None:
        files = {path.name: path.read_bytes() for path in PLUGIN.parent.glob("*.py")}

        names = ["dstat_gpu.py", "dool_gpu.py", "dstat_gpu_stall.py", "dool_gpu_stall.py"]
        assert files == dict.fromkeys(names, PLUGIN.read_bytes())

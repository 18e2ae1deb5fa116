"""Tests of the message where ``pynvml`` is not the module of nvidia-ml-py."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from gpumon.sources.nvml.pynvml_module import is_fit
from tests.programs import ROOT

OLD = "nvmlLib = None\nNVMLError = Exception\ndef nvmlInit(): pass\n"
"""A module without the names of newer drivers."""
LOG = (
    "timestamp, utilization.gpu [%]\n2024/01/01 00:00:00.000, 90 %\n2024/01/01 00:00:01.000, 90 %\n"
)


def gpumon(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command with the modules of a folder before all others."""
    return subprocess.run(
        [sys.executable, "-m", "gpumon", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": f"{folder}:{ROOT}",
            "GPUMON_RUNTIME_DIR": str(folder / "run"),
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def commands(sentence: str) -> list[list[str]]:
    """The arguments of each pip command that a sentence quotes."""
    found = re.search("run `(.*?)`", sentence)
    assert found, sentence
    quoted = [shlex.split(one) for one in found[1].split(" && ")]
    assert all(one[:3] == [sys.executable, "-m", "pip"] for one in quoted)
    return [one[3:] for one in quoted]


FIX = [
    ["uninstall", "-y", "pynvml", "nvidia-ml-py3"],
    ["install", "--force-reinstall", "nvidia-ml-py"],
]


class TestAnotherModuleOfThatName:
    @pytest.mark.parametrize(
        ("file", "text", "found"),
        [
            ("pynvml.py", OLD, "but found {}/pynvml.py"),
            ("pynvml/__init__.py", f"{OLD}nvmlPciInfo_t = 1\n", "but found {}/pynvml/__init__.py"),
            ("pynvml.py", "print 'for Python 2'\n", "but it cannot be imported"),
        ],
    )
    def test_ends_serve_with_exit_code_3_and_the_command_that_fixes_it(
        self, tmp_path: Path, file: str, text: str, found: str
    ) -> None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)

        ended = gpumon(tmp_path, "serve", "--listen", "127.0.0.1:0")

        assert ended.returncode == 3
        (sentence,) = ended.stderr.splitlines()
        assert found.format(tmp_path) in sentence
        assert commands(sentence) == FIX
        assert "Error" not in sentence

    def test_is_reported_by_the_doctor_and_stops_no_command_without_gpus(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "pynvml.py").write_text(OLD)
        (tmp_path / "gpu.csv").write_text(LOG)

        doctor = gpumon(tmp_path, "doctor")

        assert (doctor.returncode, doctor.stderr) == (3, "")
        printed = " ".join(doctor.stdout.split())
        assert "✗ source gpumon needs the module pynvml of nvidia-ml-py" in printed
        assert commands(printed) == FIX
        assert "device files" in printed, "the other findings are still there"
        assert gpumon(tmp_path, "analyze", str(tmp_path / "gpu.csv")).returncode == 0


def test_the_installed_module_is_fit() -> None:
    assert is_fit(pynvml)

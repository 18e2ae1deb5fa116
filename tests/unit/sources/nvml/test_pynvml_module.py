"""Tests of the message where ``pynvml`` is not the module of nvidia-ml-py.

The packages are stand-ins of a few lines, in a folder of ``PYTHONPATH``: they have the shape of
those that they are named after, and none of their code.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

import pynvml
import pytest

from gpumon.sources.nvml.pynvml_module import is_fit, refusal
from tests.programs import ROOT

OLD = "nvmlLib = None\nNVMLError = Exception\ndef nvmlInit(): pass\n"
"""A module without the names of newer drivers."""
PACKAGE = {"pynvml/__init__.py": "from .nvml import *\nnvmlPciInfo_t = 1\n", "pynvml/nvml.py": OLD}
MODULE = {"pynvml.py": OLD}
FOR_PYTHON_2 = {"pynvml.py": "print 'hello'\n"}
LOG = (
    "timestamp, utilization.gpu [%]\n2024/01/01 00:00:00.000, 90 %\n2024/01/01 00:00:01.000, 90 %\n"
)


def installed(folder: Path, name: str, version: str, files: dict[str, str]) -> Distribution:
    """Install a stand-in for that distribution, as pip would."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "top_level.txt").write_text("pynvml\n")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
    return Distribution.at(info)


def gpumon(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command with the packages of a folder before all others."""
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
    quoted = [shlex.split(command) for command in found[1].split(" && ")]
    assert all(command[:3] == [sys.executable, "-m", "pip"] for command in quoted)
    return [command[3:] for command in quoted]


INSTALL = ["install", "--force-reinstall", "nvidia-ml-py"]


class TestAnotherPackageWithThatModule:
    @pytest.mark.parametrize(
        ("name", "version", "files"),
        [
            ("pynvml", "11.5.0", PACKAGE),
            ("pynvml", "8.0.4", PACKAGE),
            ("nvidia-ml-py3", "7.352.0", MODULE),
            ("nvidia-ml-py3", "7.352.0", FOR_PYTHON_2),
        ],
    )
    def test_ends_serve_with_exit_code_3_and_the_command_that_fixes_it(
        self, tmp_path: Path, name: str, version: str, files: dict[str, str]
    ) -> None:
        installed(tmp_path, name, version, files)

        ended = gpumon(tmp_path, "serve", "--listen", "127.0.0.1:0")

        assert ended.returncode == 3
        (sentence,) = ended.stderr.splitlines()
        assert f"{name} {version} installs another one" in sentence
        assert commands(sentence) == [["uninstall", "-y", name], INSTALL]
        assert "Error" not in sentence

    def test_is_reported_by_doctor_and_record_and_stops_no_command_without_gpus(
        self, tmp_path: Path
    ) -> None:
        installed(tmp_path, "pynvml", "11.5.0", PACKAGE)
        (tmp_path / "gpu.csv").write_text(LOG)

        doctor = gpumon(tmp_path, "doctor")
        record = gpumon(tmp_path, "record", str(tmp_path / "night.gpumon"))
        analyze = gpumon(tmp_path, "analyze", str(tmp_path / "gpu.csv"))
        simulated = gpumon(tmp_path, "doctor", "--source", "simulated:healthy")

        assert (doctor.returncode, record.returncode) == (3, 3)
        assert (analyze.returncode, simulated.returncode) == (0, 0)
        assert doctor.stderr == ""
        printed = " ".join(doctor.stdout.split())
        assert "✗ source gpumon needs the module pynvml of nvidia-ml-py" in printed
        assert commands(printed) == commands(record.stderr)
        assert "device files" in printed, "the other findings are still there"


class TestTwoOtherPackages:
    @pytest.mark.parametrize("names", [("nvidia-ml-py3", "pynvml"), ("pynvml", "nvidia-ml-py3")])
    def test_are_removed_in_one_command(self, tmp_path: Path, names: tuple[str, str]) -> None:
        both = [installed(tmp_path, name, "8.0", MODULE) for name in names]
        ours = installed(tmp_path, "nvidia-ml-py", "13.580", MODULE)

        for order in ([*both, ours], [ours, *both]):
            sentence = str(refusal(None, order))

            assert commands(sentence) == [["uninstall", "-y", *names], INSTALL]
            assert "8.0 install another one" in sentence


class TestNvidiaMlPy:
    def test_if_too_old_is_refused_with_the_version_that_is_needed(self, tmp_path: Path) -> None:
        installed(tmp_path, "nvidia-ml-py", "11.450.129", MODULE)

        ended = gpumon(tmp_path, "serve", "--listen", "127.0.0.1:0")

        assert ended.returncode == 3
        assert "nvidia-ml-py 11.450.129 is too old for gpumon, which needs 12.535" in ended.stderr
        assert commands(ended.stderr) == [INSTALL]

    def test_whose_file_went_with_another_package_is_reinstalled(self, tmp_path: Path) -> None:
        ours = installed(tmp_path, "nvidia_ml_py", "13.580", {})

        assert "13.580 is missing or damaged" in str(refusal(None, [ours]))
        assert commands(str(refusal(None, [ours]))) == [INSTALL]
        assert "is not installed" in str(refusal(None, []))

    def test_hidden_by_a_file_of_that_name_is_refused_with_its_path(self, tmp_path: Path) -> None:
        (tmp_path / "pynvml.py").write_text(OLD)

        ended = gpumon(tmp_path, "serve", "--listen", "127.0.0.1:0")

        assert ended.returncode == 3
        assert f"{tmp_path / 'pynvml.py'} hides the module pynvml" in ended.stderr


def test_the_installed_module_is_fit() -> None:
    assert is_fit(pynvml)

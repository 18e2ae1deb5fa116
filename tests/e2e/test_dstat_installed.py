"""The plugin in what pip installs: root's system prefix has it in place, a venv can copy it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders_dstat import PLUGIN

ROOT = PLUGIN.parents[1]
BUILT_FROM = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
    *("gpumon", "trainer_hooks", "dstat_plugins"),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip installed a copy of this checkout, without what it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    source.mkdir()
    for name in BUILT_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, *words, "--ignore-installed", "--prefix", str(folder / "prefix"), str(source)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "prefix"


@pytest.mark.parametrize(
    "place",
    ["share/dstat/dstat_gpu.py", "share/dool/dool_gpu.py", "share/dool/plugins/dool_gpu.py"],
)
def test_pip_puts_the_plugin_where_the_hosts_look_below_its_prefix(
    prefix: Path, place: str
) -> None:
    installed = prefix / place

    assert not installed.is_symlink()
    assert installed.read_bytes() == PLUGIN.read_bytes()


def test_an_installed_gpumon_finds_its_plugin_and_copies_it(prefix: Path, tmp_path: Path) -> None:
    (packages,) = prefix.glob("lib/python3*/site-packages")
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "dstat", "install"],
        env={**os.environ, "PYTHONPATH": str(packages), "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    copied = (tmp_path / ".dstat" / "dstat_gpu.py").read_text(encoding="ascii")
    assert copied.endswith(PLUGIN.read_text(encoding="ascii").split("\n", 1)[1])

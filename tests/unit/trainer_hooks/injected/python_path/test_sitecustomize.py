"""What runs in every Python that `gpumon run` starts, however old."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.programs import ROOT, ran_python

FILE = ROOT / "trainer_hooks/injected/python_path/sitecustomize.py"

AS_OLD = f"""
import runpy, sys
sys.version_info = (3, 8, 1)
before = [*sys.meta_path]
try: runpy.run_path({str(FILE)!r})  # then the next one on the path: Debian has one
except ImportError as error: assert error.name == "sitecustomize"
print(sys.meta_path == before)
"""


def test_every_python_from_3_6_on_can_parse_it() -> None:
    ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_an_old_python_records_its_version_and_nothing_else(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()

    done = ran_python("-c", AS_OLD, environ={"GPUMON_RUN_NOTES": str(notes)})

    assert (done.stdout, notes.read_text()) == ("True\n", "old 3.8\n")


def test_it_makes_no_file_and_writes_in_none_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("missing", "link"):
        ran_python("-c", AS_OLD, environ={"GPUMON_RUN_NOTES": str(tmp_path / name)})

    assert not (tmp_path / "missing").exists()
    assert (tmp_path / "target").read_text() == ""

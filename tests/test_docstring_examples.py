"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("gpumon", "trainer_hooks")
    for path in sorted((ROOT / folder).glob("**/*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_come_out_as_written(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))

    assert tried > 0
    assert failed == 0


def test_there_are_some() -> None:
    assert "gpumon.core.phase" in WITH_EXAMPLES

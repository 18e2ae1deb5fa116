"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def with_examples(folder: str) -> list[str]:
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / folder).glob("**/*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


def check(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))

    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize("module", with_examples("gpumon"))
def test_examples_of_gpumon_give_the_written_output(module: str) -> None:
    check(module)


@pytest.mark.keras_jax
@pytest.mark.parametrize("module", with_examples("trainer_hooks"))
def test_examples_of_the_hooks_give_the_written_output(module: str) -> None:
    check(module)


def test_there_are_some() -> None:
    assert "gpumon.core.phase" in with_examples("gpumon")

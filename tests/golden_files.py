"""Texts that equal a file in ``golden``; ``make golden`` renews the files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

GOLDEN = Path(__file__).resolve().parent / "golden"
Chapters: TypeAlias = Mapping[str, str]
"""Texts by title."""


def verify_golden(name: str, text: str) -> None:
    """Compare a text with its file, or write the file."""
    path = GOLDEN / name
    if os.environ.get("GPUMON_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")

    assert text == path.read_text(encoding="utf-8"), "run: make golden"


def golden_story(story: Callable[..., Chapters]) -> Callable[..., None]:
    """A test that the texts of ``test_<story>`` equal ``golden/<story>.txt``."""

    @wraps(story)
    def test(**fixtures: Any) -> None:
        reported = story(**fixtures).items()
        text = "\n".join(f"== {title}\n{text.rstrip()}\n" for title, text in reported)
        verify_golden(f"{story.__name__.removeprefix('test_')}.txt", text)

    return test

"""What is compared to the byte with a file in ``golden``, which ``make golden`` renews."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

GOLDEN = Path(__file__).resolve().parent / "golden"
Chapters: TypeAlias = Mapping[str, str]
"""Texts, each by a title that says what it is reported."""


def verify_golden(name: str, text: str) -> None:
    """The text is that of the file; where golden files are written again, from now on."""
    path = GOLDEN / name
    if os.environ.get("GPUMON_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")

    assert text == path.read_text(encoding="utf-8"), "run: make golden"


def golden_story(story: Callable[..., Chapters]) -> Callable[..., None]:
    """A test that what ``test_<story>`` says is ``golden/<story>.txt``."""

    @wraps(story)
    def test(**fixtures: Any) -> None:
        reported = story(**fixtures).items()
        text = "\n".join(f"== {title}\n{text.rstrip()}\n" for title, text in reported)
        verify_golden(f"{story.__name__.removeprefix('test_')}.txt", text)

    return test

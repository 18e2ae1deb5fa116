"""SECURITY.md: each statement on what others can and cannot do names the test that proves it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
STATEMENTS = PAGE.partition("\n## What ")[2].partition("\n## Reporting")[0]
SOURCE = re.compile(r'^\[(✓\d+)\]: (\S+) "([\w:]+)"$', re.MULTILINE)
MARK = re.compile(r"\[(✓\d+)\]")


def statements() -> list[tuple[str, str]]:
    """The text before each mark, and the mark; empty where a text has none."""
    lines = [line for line in STATEMENTS.splitlines()[1:] if not line.startswith("#")]
    items = re.split(r"(?m)^A local user can(?:not)?:$|^- |\n\n", "\n".join(lines))
    found = []
    for text in (" ".join(item.split()) for item in items):
        parts = MARK.split(text)
        found += [*zip(parts[::2], [*parts[1::2], ""], strict=True)]
    return [(text.strip(), mark) for text, mark in found if text.strip()]


def test_every_mark_is_used_once_in_order() -> None:
    assert [mark for _, mark in statements()] == [mark for mark, _, _ in SOURCE.findall(PAGE)]
    assert len(statements()) >= 20


@pytest.mark.parametrize(("text", "mark"), statements())
def test_each_statement_names_an_existing_test(text: str, mark: str) -> None:
    assert mark, f"no test is named: {text}"
    assert ". " not in text, f"a sentence has no test: {text}"
    tests = {found: (file, name) for found, file, name in SOURCE.findall(PAGE)}
    file, name = tests[mark]
    parent, _, function = name.rpartition("::")
    assert function.startswith("test_")
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    if parent:
        (body,) = (one.body for one in body if isinstance(one, ast.ClassDef) and one.name == parent)
    assert function in {one.name for one in body if isinstance(one, ast.FunctionDef)}

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
    assert name in names_in(ROOT / file), f"{file} has no test {name}"
    assert name.rpartition("::")[2].startswith("test_")


def names_in(path: Path) -> set[str]:
    """The functions and methods of a file, as ``name`` and ``Class::name``."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        names |= {f"{prefix}{one.name}" for one in inner if isinstance(one, ast.FunctionDef)}
    return names

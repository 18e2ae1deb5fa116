"""SECURITY.md: each sentence of what others can and cannot do names the test that holds it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

_PROMISES = PAGE.partition("\n## What ")[2].partition("\n## Reporting")[0]
_SOURCE = re.compile(r'^\[(✓\d+)\]: (\S+) "([\w:]+)"$', re.MULTILINE)
_MARK = re.compile(r"\[(✓\d+)\]")


def claims() -> list[tuple[str, str]]:
    """What is reported up to each mark, with the mark; where one is missing, it is empty."""
    lines = [line for line in _PROMISES.splitlines()[1:] if not line.startswith("#")]
    # Of a list, the line above it says whose it is; each of its lines says something.
    items = re.split(r"(?m)^A local user can(?:not)?:$|^- |\n\n", "\n".join(lines))
    found = []
    for text in (" ".join(item.split()) for item in items):
        parts = _MARK.split(text)
        found += [*zip(parts[::2], [*parts[1::2], ""], strict=True)]
    return [(claim.strip(), mark) for claim, mark in found if claim.strip()]


def names_in(path: Path) -> set[str]:
    """The tests of a file, as ``Class::name`` or ``name``."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            names.update(f"{node.name}::{name}" for name in inner)
    return names


def test_it_is_one_page() -> None:
    assert len(_SOURCE.sub("", PAGE).strip().splitlines()) <= 80
    assert len(claims()) >= 20


def test_every_mark_is_explained_once_and_used() -> None:
    marks = [mark for mark, _, _ in _SOURCE.findall(PAGE)]

    assert [mark for _, mark in claims()] == marks


@pytest.mark.parametrize(("claim", "mark"), claims())
def test_a_claim_names_its_test(claim: str, mark: str) -> None:
    assert mark, f"no test is named: {claim}"
    assert ". " not in claim, f"a sentence of it has no test: {claim}"
    tests = {found: (file, name) for found, file, name in _SOURCE.findall(PAGE)}
    file, name = tests[mark]
    assert name in names_in(ROOT / file), f"{file} has no {name}"
    assert name.rpartition("::")[2].startswith("test_")

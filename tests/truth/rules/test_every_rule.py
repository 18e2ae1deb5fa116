"""Every rule has a workload in which it must apply, and one in which it must not.

The class is called as the rule: ``starvation_suspected`` is held by
``TestStarvationSuspected``, with tests called ``test_speaks_...`` and
``test_is_silent_...``.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpumon.core.diagnosis.rules import ALL_RULES
from gpumon.core.settings.rule import Rule


def truths() -> dict[str, list[str]]:
    """The tests in each class of this room."""
    return {
        node.name: [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
        for path in sorted(Path(__file__).parent.glob("test_*_rules.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


def class_of(rule: Rule) -> str:
    return "Test" + "".join(part.capitalize() for part in rule.id.split("_"))


class TestEveryRule:
    @pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
    def test_has_a_workload_where_it_speaks_and_one_where_it_is_silent(self, rule: Rule) -> None:
        tests = truths().get(class_of(rule), [])

        assert [name for name in tests if name.startswith("test_speaks_")]
        assert [name for name in tests if name.startswith("test_is_silent_")]

    def test_here_is_one_that_there_is(self) -> None:
        assert truths().keys() == {class_of(rule) for rule in ALL_RULES}

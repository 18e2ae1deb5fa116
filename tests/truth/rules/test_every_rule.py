"""Every rule has a test in which it applies, and one in which it does not.

The tests of a rule are in a class of its name (``TestMemoryHeld`` for ``memory_held``) or in the
table of its kind.
"""

from __future__ import annotations

import ast
from pathlib import Path

from gpumon.core.diagnosis.rules import ALL_RULES
from tests.truth.rules import test_reason_rules, test_verdict_rules


def names_by_class() -> dict[str, str]:
    """The names of the tests of each class in this folder."""
    return {
        node.name: " ".join(one.name for one in node.body if isinstance(one, ast.FunctionDef))
        for path in sorted(Path(__file__).parent.glob("test_*_rules.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test")
    }


def test_every_rule_is_tested_both_ways() -> None:
    in_tables = {*test_reason_rules.RULES, *(name.value for name in test_verdict_rules.RULES)}
    in_classes = {
        f"Test{rule.id.title().replace('_', '')}" for rule in ALL_RULES if rule.id not in in_tables
    }
    tests = names_by_class()

    assert in_tables <= {rule.id for rule in ALL_RULES}
    assert in_classes == set(tests)
    assert all("test_applies_" in names for names in tests.values())
    assert all("test_does_not_apply_" in names for names in tests.values())

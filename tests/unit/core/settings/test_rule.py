"""Specification of rules: a predicate says itself what it decides, and stays what it is."""

from __future__ import annotations

import pytest

from gpumon.core.settings.rule import Rule, RuleKind, rule, rule_of


@rule("high", RuleKind.FINDING, says="it is", evidence="Its height.", thresholds=("lost_share",))
def is_high(height: float, least: float) -> bool:
    """Its height."""
    return height >= least


class TestARule:
    def test_is_known_by_its_predicate(self) -> None:
        assert rule_of(is_high) == Rule(
            id="high", kind=RuleKind.FINDING, says="it is", evidence="Its height.",
            thresholds=("lost_share",), measured_with=(), holds=is_high,
        )  # fmt: skip

    def test_leaves_the_predicate_as_it_is(self) -> None:
        assert (is_high(2.0, 1.0), is_high(0.5, 1.0)) == (True, False)
        assert is_high.__doc__ == "Its height."

    def test_is_none_where_nobody_said_so(self) -> None:
        with pytest.raises(AttributeError):
            rule_of(lambda: True)

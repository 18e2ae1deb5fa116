"""Tests of the decorator that attaches a rule to a predicate."""

from __future__ import annotations

import pytest

from gpumon.core.settings.rule import Rule, RuleKind, rule, rule_of


@rule("high", RuleKind.FINDING, says="it is", evidence="Its height.", thresholds=("lost_share",))
def is_high(height: float, least: float) -> bool:
    """Its height."""
    return height >= least


def test_a_predicate_has_its_rule_and_stays_what_it_is() -> None:
    assert rule_of(is_high) == Rule(
        id="high", kind=RuleKind.FINDING, says="it is", evidence="Its height.",
        thresholds=("lost_share",), measured_with=(), holds=is_high,
    )  # fmt: skip
    assert (is_high(2.0, 1.0), is_high(0.5, 1.0)) == (True, False)
    assert is_high.__doc__ == "Its height."
    with pytest.raises(AttributeError):
        rule_of(lambda: True)

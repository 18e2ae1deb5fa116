"""What a rule is: one pure predicate, the thresholds it reads, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

_Predicate = TypeVar("_Predicate", bound=Callable[..., bool])
_MARK: Final = "rule"


class RuleKind(str, Enum):
    """What becomes of a rule's word."""

    VERDICT = "verdict"
    """The one word on a GPU's time: the first of them that holds, in their order."""
    FINDING = "finding"
    """A fact beside the verdict, which it never changes."""
    ADVICE = "advice"
    """Whether something that is true is worth a word on what to change."""
    REASON = "reason"
    """Why a training waits: all of them that hold, the first one counts."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One decision about what is said to a user.

    Attributes:
        id: Stable, in snake_case; of a verdict, its name in reports.
        says: What is so where it holds, in a clause.
        evidence: What it rests on, in a sentence.
        thresholds: Names, as in ``thresholds_of``, of those that ``holds`` asks for.
        measured_with: Names of those that its evidence was counted with before.
        holds: The decision: pure, with the settings, or a group of them, as
            its last argument. Of a verdict: ``(GpuTotals, DetectorSettings)``.
    """

    id: str
    kind: RuleKind
    says: str
    evidence: str
    thresholds: tuple[str, ...]
    measured_with: tuple[str, ...]
    holds: Callable[..., bool]


def rule(
    rule_id: str,
    kind: RuleKind,
    *,
    says: str,
    evidence: str,
    thresholds: tuple[str, ...],
    measured_with: tuple[str, ...] = (),
) -> Callable[[_Predicate], _Predicate]:
    """Say of a predicate, which stays as it is, what rule it decides; arguments as in ``Rule``.

    People hear of it where ``judge.rules`` lists it.
    """

    def of(predicate: _Predicate) -> _Predicate:
        decided = Rule(rule_id, kind, says, evidence, thresholds, measured_with, predicate)
        setattr(predicate, _MARK, decided)
        return predicate

    return of


def rule_of(predicate: Callable[..., bool]) -> Rule:
    """The rule that a predicate decides.

    Raises:
        AttributeError: It decides none.
    """
    found: Rule = getattr(predicate, _MARK)
    return found

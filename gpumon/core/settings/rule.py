"""A rule: a pure predicate with the thresholds it reads and the evidence it uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

_Predicate = TypeVar("_Predicate", bound=Callable[..., bool])
_MARK: Final = "rule"


class RuleKind(str, Enum):
    """What a rule decides."""

    VERDICT = "verdict"
    """A GPU's verdict: the first rule that holds, in their order."""
    FINDING = "finding"
    """A fact next to the verdict, which it never changes."""
    ADVICE = "advice"
    """Whether a fact is worth an advice."""
    REASON = "reason"
    """Why a run waits: the first rule that holds is the main reason."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One decision about what a user is shown.

    Attributes:
        id: Stable, in snake_case; a verdict's name in reports.
        says: What is true where it holds, as a clause.
        evidence: What it rests on, as a sentence.
        thresholds: Names, as in ``thresholds_of``, of the thresholds that ``holds`` reads.
        measured_with: Names of the thresholds with which its evidence was measured.
        holds: The pure predicate, with the settings, or a group of them, as
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
    """Attach a ``Rule`` to a predicate. ``diagnosis.rules`` lists those that users see."""

    def of(predicate: _Predicate) -> _Predicate:
        decided = Rule(rule_id, kind, says, evidence, thresholds, measured_with, predicate)
        setattr(predicate, _MARK, decided)
        return predicate

    return of


def rule_of(predicate: Callable[..., bool]) -> Rule:
    """The rule of a predicate; ``AttributeError`` if it has none."""
    found: Rule = getattr(predicate, _MARK)
    return found

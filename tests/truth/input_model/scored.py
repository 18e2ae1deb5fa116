"""How right the probabilities are on generators left out of the fit: tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from gpumon.core.accounting.suspicion import input_probability
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.settings.input_model import PRIOR, TERMS, WEIGHTS
from tests.truth.input_model.cases import FAMILIES, RECORDED, Case, worst_of_each_machine
from tests.truth.input_model.fitting import fitted

_FROM: Final = DEFAULT_SETTINGS.suspected_from
_TENTHS: Final = 10
_FEW: Final = 50
_ALIKE_WITHIN: Final = 0.15
_MOST_KINDS: Final = 12
_MUCH: Final = 0.1
_EXACT_WITHIN: Final = 0.01


class Graded(NamedTuple):
    """One machine in one log.

    Attributes:
        family: Whose machine it is.
        kind: Of the machine.
        probability: Of the GPU that lost most.
        is_starved: Whether any of its GPUs is.
    """

    family: str
    kind: str
    probability: float
    is_starved: bool


def left_out(cases: Sequence[Case]) -> dict[str, list[float]]:
    """The weights for each generator, from the others; for recordings, from all of them."""
    made = [case for case in cases if case.family in FAMILIES]
    weights = {name: fitted([case for case in made if case.family != name]) for name in FAMILIES}
    return {**weights, RECORDED: fitted(made)}


def graded(
    cases: Iterable[Case], weights: Mapping[str, Sequence[float]] | None = None
) -> list[Graded]:
    """Each machine with three pauses or more, by the GPU that lost most.

    Args:
        cases: Of any machines.
        weights: By family; ``None``: as reported.
    """
    return [
        Graded(case.family, case.kind, _probability(case, weights), is_starved)
        for case, is_starved in worst_of_each_machine(cases)
    ]


def _probability(case: Case, weights: Mapping[str, Sequence[float]] | None) -> float:
    suspicion = case.suspicion
    if suspicion is None:
        return 0.0
    if weights is None or suspicion.shape is None:
        return suspicion.input_probability
    return input_probability(suspicion.shape, weights[case.family])


def precision(some: Sequence[Graded]) -> float:
    """Of the accused, the share that is starved."""
    accused = [one.is_starved for one in some if one.probability >= _FROM]
    return sum(accused) / len(accused) if accused else float("nan")


def recall(some: Sequence[Graded]) -> float:
    """Of the starved, the share that is accused."""
    starved = [one.probability >= _FROM for one in some if one.is_starved]
    return sum(starved) / len(starved) if starved else float("nan")


def brier(some: Sequence[Graded]) -> float:
    """Mean squared error of the probabilities."""
    errors = [(one.probability - one.is_starved) ** 2 for one in some]
    return sum(errors) / len(errors) if errors else float("nan")


def left_out_table(some: Sequence[Graded]) -> str:
    """A row for each generator, for all of them together, and for the recordings."""
    lines = [
        "| left out | logs | starved | accused | precision | recall | Brier | of the share alone |",
        "|---|---|---|---|---|---|---|---|",
    ]
    made = [one for one in some if one.family in FAMILIES]
    rows = [(name, [one for one in some if one.family == name]) for name in FAMILIES]
    rows.append(("each in turn, together", made))
    rows.append(("recorded boards", [one for one in some if one.family == RECORDED]))
    for name, part in rows:
        if not part:
            continue
        share = sum(one.is_starved for one in part) / len(part)
        accused = sum(one.probability >= _FROM for one in part)
        lines.append(
            f"| {name} | {len(part):,} | {share:.0%} | {accused} | {precision(part):.2f} | "
            f"{recall(part):.3f} | {brier(part):.3f} | {share * (1 - share):.3f} |"
        )
    return "\n".join(lines)


def reliability_table(some: Sequence[Graded]) -> str:
    """What was reported, and how often it was so, of the generators left out."""
    made = [one for one in some if one.family in FAMILIES]
    lines = ["| reported | logs | mean | starved | off |", "|---|---|---|---|---|"]
    for tenth in range(_TENTHS):
        part = [one for one in made if min(_TENTHS - 1, int(one.probability * _TENTHS)) == tenth]
        if not part:
            continue
        mean = float(np.mean([one.probability for one in part]))
        starved = float(np.mean([one.is_starved for one in part]))
        few = "" if len(part) >= _FEW else " (few)"
        lines.append(
            f"| {tenth / _TENTHS:.1f} to {(tenth + 1) / _TENTHS:.1f} | {len(part):,}{few} | "
            f"{mean:.2f} | {starved:.2f} | {100 * (starved - mean):+.0f} points |"
        )
    return "\n".join(lines)


def accused_kinds_table(some: Sequence[Graded]) -> str:
    """The kinds that are not starved and are accused most often."""
    kinds: dict[tuple[str, str], list[Graded]] = {}
    for one in some:
        kinds.setdefault((one.family, one.kind), []).append(one)
    rows = []
    for (family, kind), part in kinds.items():
        wrong = sum(one.probability >= _FROM and not one.is_starved for one in part)
        if wrong:
            rows.append((wrong / len(part), f"| {family} | {kind} | {wrong} of {len(part)} |"))
    rows.sort(key=lambda row: -row[0])
    head = ["| generator | kind | accused, and not starved |", "|---|---|---|"]
    return "\n".join([*head, *(text for _, text in rows[:_MOST_KINDS])])


def rates_table(cases: Iterable[Case]) -> str:
    """How far apart the probabilities of one machine are that is read at several rates."""
    machines: dict[tuple[str, str, int, float, int], list[float]] = {}
    for case in cases:
        if case.is_graded and case.suspicion is not None:
            key = (case.family, case.kind, case.seed, case.minutes, case.gpu)
            machines.setdefault(key, []).append(case.suspicion.input_probability)
    lines = ["| read at 0.2, 1 and 5 s | GPUs | within 0.15 of itself |", "|---|---|---|"]
    for name in FAMILIES:
        spreads = [
            max(each) - min(each)
            for (family, *_), each in machines.items()
            if family == name and len(each) == len(RATES_S)
        ]
        if spreads:
            alike = np.mean([spread <= _ALIKE_WITHIN for spread in spreads])
            lines.append(f"| {name} | {len(spreads):,} | {alike:.0%} |")
    return "\n".join(lines)


def lost_seconds_table(cases: Iterable[Case]) -> str:
    """How far the lost seconds are off, of GPUs that lose a tenth or more of a log, by the rate."""
    errors: dict[float, list[float]] = {}
    for case in cases:
        truth_s = case.truly_lost_s
        if truth_s is not None and truth_s >= _MUCH * 60 * case.minutes:
            errors.setdefault(case.period_s, []).append(abs(case.lost_s / truth_s - 1))
    lines = [
        "| a reading each | GPUs | median error | nine in ten within | within 1 % |",
        "|---|---|---|---|---|",
    ]
    for period_s, some in sorted(errors.items()):
        half, most = np.quantile(some, [0.5, 0.9])
        alike = np.mean([error <= _EXACT_WITHIN for error in some])
        lines.append(f"| {period_s:g} s | {len(some):,} | {half:.1%} | {most:.1%} | {alike:.0%} |")
    return "\n".join(lines)


RATES_S: Final = (0.2, 1.0, 5.0)


def abstained(some: Sequence[Graded]) -> float:
    """The share of logs in which the shape decides nothing, 0 to 1."""
    return sum(one.probability == PRIOR for one in some) / len(some)


def terms_table() -> str:
    """The model itself, for the page that explains it."""
    lines = [
        "| statement | measure | no effect at | full effect at | weight |",
        "|---|---|---|---|---|",
    ]
    for name, term in TERMS.items():
        lines.append(
            f"| {term.says} | `{term.measure}` | {term.zero_at:g} | {term.full_at:g} | "
            f"{WEIGHTS[name]:+.2f} |"
        )
    return "\n".join(lines)

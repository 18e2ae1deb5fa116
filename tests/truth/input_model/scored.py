"""How right the probabilities are on generators that were left out of the fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from gpumon.core.accounting.suspicion import input_probability
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.settings.input_model import TERMS, WEIGHTS
from tests.truth.input_model.cases import FAMILIES, RECORDED, Case, worst_of_each_machine
from tests.truth.input_model.fitting import fitted
from tests.truth.tables import table

_FROM: Final = DEFAULT_SETTINGS.suspected_from
_TENTHS: Final = 10
_FEW: Final = 50
_ALIKE_WITHIN: Final = 0.15
_MAX_KINDS: Final = 12
_MUCH: Final = 0.1
_EXACT_WITHIN: Final = 0.01
RATES_S: Final = (0.2, 1.0, 5.0)


class Graded(NamedTuple):
    """One machine in one log.

    Attributes:
        probability: Of the GPU that lost most.
        is_starved: Whether any of its GPUs is.
    """

    family: str
    kind: str
    probability: float
    is_starved: bool


def left_out(cases: Sequence[Case]) -> dict[str, list[float]]:
    """The weights for each generator, fitted on the others; for recordings, on all of them."""
    made = [case for case in cases if case.family in FAMILIES]
    weights = {name: fitted([case for case in made if case.family != name]) for name in FAMILIES}
    return {**weights, RECORDED: fitted(made)}


def graded(
    cases: Iterable[Case], weights: Mapping[str, Sequence[float]] | None = None
) -> list[Graded]:
    """Each machine with enough pauses; ``weights`` by family, or ``None``: as reported."""
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
    """The share of the suspected that is starved."""
    suspected = [one.is_starved for one in some if one.probability >= _FROM]
    return sum(suspected) / len(suspected) if suspected else float("nan")


def recall(some: Sequence[Graded]) -> float:
    """The share of the starved that is suspected."""
    starved = [one.probability >= _FROM for one in some if one.is_starved]
    return sum(starved) / len(starved) if starved else float("nan")


def brier(some: Sequence[Graded]) -> float:
    """Mean squared error of the probabilities."""
    errors = [(one.probability - one.is_starved) ** 2 for one in some]
    return sum(errors) / len(errors) if errors else float("nan")


def left_out_table(some: Sequence[Graded]) -> str:
    """A row for each generator, for all of them together, and for the recordings."""
    parts = {name: [one for one in some if one.family == name] for name in FAMILIES}
    parts["each in turn, together"] = [one for one in some if one.family in FAMILIES]
    parts["recorded boards"] = [one for one in some if one.family == RECORDED]
    rows = []
    for name, part in parts.items():
        if part:
            share = sum(one.is_starved for one in part) / len(part)
            rows.append([
                name, f"{len(part):,}", f"{share:.0%}",
                sum(one.probability >= _FROM for one in part), f"{precision(part):.2f}",
                f"{recall(part):.3f}", f"{brier(part):.3f}", f"{share * (1 - share):.3f}",
            ])  # fmt: skip
    heads = ["left out", "logs", "starved", "suspected", "precision", "recall", "Brier"]
    return table([*heads, "of the base rate"], rows)


def reliability_table(some: Sequence[Graded]) -> str:
    """Each tenth of the probability, and the share that was starved."""
    made = [one for one in some if one.family in FAMILIES]
    rows = []
    for tenth in range(_TENTHS):
        part = [one for one in made if min(_TENTHS - 1, int(one.probability * _TENTHS)) == tenth]
        if part:
            mean = float(np.mean([one.probability for one in part]))
            starved = float(np.mean([one.is_starved for one in part]))
            few = "" if len(part) >= _FEW else " (few)"
            rows.append([
                f"{tenth / _TENTHS:.1f} to {(tenth + 1) / _TENTHS:.1f}", f"{len(part):,}{few}",
                f"{mean:.2f}", f"{starved:.2f}", f"{100 * (starved - mean):+.0f} points",
            ])  # fmt: skip
    return table(["reported", "logs", "mean", "starved", "off"], rows)


def wrong_kinds_table(some: Sequence[Graded]) -> str:
    """The kinds that are suspected most often without being starved."""
    kinds: dict[tuple[str, str], list[Graded]] = {}
    for one in some:
        kinds.setdefault((one.family, one.kind), []).append(one)
    found = []
    for (family, kind), part in kinds.items():
        wrong = sum(one.probability >= _FROM and not one.is_starved for one in part)
        if wrong:
            found.append((wrong / len(part), [family, kind, f"{wrong} of {len(part)}"]))
    found.sort(key=lambda row: -row[0])
    heads = ["generator", "kind", "suspected, and not starved"]
    return table(heads, [row for _, row in found[:_MAX_KINDS]])


def rates_table(cases: Iterable[Case]) -> str:
    """Differences between the probabilities of one machine that is read at several rates."""
    machines: dict[tuple[str, str, int, float, int], list[float]] = {}
    for case in cases:
        if case.is_graded and case.suspicion is not None:
            key = (case.family, case.kind, case.seed, case.minutes, case.gpu)
            machines.setdefault(key, []).append(case.suspicion.input_probability)
    rows = []
    for name in FAMILIES:
        spreads = [
            max(each) - min(each)
            for (family, *_), each in machines.items()
            if family == name and len(each) == len(RATES_S)
        ]
        if spreads:
            alike = np.mean([spread <= _ALIKE_WITHIN for spread in spreads])
            rows.append([name, f"{len(spreads):,}", f"{alike:.0%}"])
    return table(["read at 0.2, 1 and 5 s", "GPUs", "within 0.15 of itself"], rows)


def lost_seconds_table(cases: Iterable[Case]) -> str:
    """Errors of the lost seconds, of GPUs that lose a tenth or more of a log, by the rate."""
    errors: dict[float, list[float]] = {}
    for case in cases:
        truth_s = case.truly_lost_s
        if truth_s is not None and truth_s >= _MUCH * 60 * case.minutes:
            errors.setdefault(case.period_s, []).append(abs(case.lost_s / truth_s - 1))
    rows = []
    for period_s, some in sorted(errors.items()):
        half, most = np.quantile(some, [0.5, 0.9])
        alike = np.mean([error <= _EXACT_WITHIN for error in some])
        rows.append(
            [f"{period_s:g} s", f"{len(some):,}", f"{half:.1%}", f"{most:.1%}", f"{alike:.0%}"]
        )
    heads = ["a reading each", "GPUs", "median error", "nine in ten within", "within 1 %"]
    return table(heads, rows)


def terms_table() -> str:
    """The model itself, for the page that explains it."""
    return table(
        ["statement", "measure", "no effect at", "full effect at", "weight"],
        [
            [term.says, f"`{term.measure}`", f"{term.zero_at:g}", f"{term.full_at:g}",
             f"{WEIGHTS[name]:+.2f}"]
            for name, term in TERMS.items()
        ],
    )  # fmt: skip

"""How right the probabilities are: the tables of ``docs/accuracy-tables.md``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.verdict import LikelyCause
from tests.truth.input_model.cases import Case
from tests.truth.score.evaluation import GPUPROF, MEAN, SAGEMAKER
from tests.truth.worlds import KINDS

HARD_KINDS: Final = (
    "worker_waves", "slow_storage", "epoch_restart", "augmentation", "shard_fetch",
    "checkpoints", "many_gpus", "validation", "rounds",
)  # fmt: skip
"""Late loaders whose pauses show, and trainings whose pauses are most like them: nine kinds."""

THRESHOLDS: Final = (0.5, 0.7)
_BASELINES: Final = (MEAN, SAGEMAKER, GPUPROF)
_LENGTHS_MINUTES: Final = (3, 5, 15.1, 61, 1_000)
_PAUSES: Final = (3, 5, 8, 16, 64, 1 << 30)
_TENTHS: Final = 10
_USUAL_PERIOD_S: Final = 1.0
_FEW: Final = 50
_FEW_PAUSES: Final = DEFAULT_SETTINGS.enough_pauses


class Told(NamedTuple):
    """What is told of one machine, or of one GPU.

    Attributes:
        probability: That it waits for input, 0 to 1.
        is_starved: Whether it does.
        is_graded: Whether a probability was told at all.
    """

    probability: float
    is_starved: bool
    is_graded: bool


def by_gpu(cases: Iterable[Case]) -> list[Told]:
    """Each GPU of each log for itself."""
    return [Told(case.probability, case.is_starved, case.is_graded) for case in cases]


def by_machine(
    cases: Iterable[Case], of: Callable[[Case], float] = lambda case: case.probability
) -> list[Told]:
    """Each log: told is what its headline says, of the GPU that lost most."""
    machines: dict[tuple[str, int, float], list[Case]] = {}
    for case in cases:
        machines.setdefault(case.machine, []).append(case)
    told = []
    for gpus in machines.values():
        worst = max(gpus, key=lambda case: (case.is_graded, case.lost_s))
        told.append(Told(of(worst), any(case.is_starved for case in gpus), worst.is_graded))
    return told


def tables(cases: Sequence[Case], forest: Mapping[int, float] | None) -> str:
    """All of them, in Markdown.

    Args:
        cases: Of seeds that nobody has seen.
        forest: What a forest on the same features says of a case, by its place; ``None``: there
            is no scikit-learn here.
    """
    usual = [case for case in cases if case.period_s <= _USUAL_PERIOD_S]
    graded = [case for case in usual if case.is_graded]
    few = [case for case in usual if case.pauses < _FEW_PAUSES]
    minutes = [
        (f"{low:g} to {high:g} min" if high < 1_000 else "2 h",
         [case for case in usual if low <= case.minutes < high])
        for low, high in pairwise(_LENGTHS_MINUTES)
    ]  # fmt: skip
    pauses = [
        (f"{low} to {high - 1}" if high < 1 << 30 else f"{low} and more",
         [case for case in graded if low <= case.pauses < high])
        for low, high in pairwise(_PAUSES)
    ]  # fmt: skip
    periods = [
        (f"{one:g} s", [case for case in cases if case.period_s == one])
        for one in sorted({case.period_s for case in cases})
    ]
    return "\n\n".join(
        [
            f"Of logs with a reading each {_USUAL_PERIOD_S:g} s or more often, but for one table:",
            _whole(usual),
            _hard(cases, forest),
            _baselines(usual),
            _reliability("told, per machine", usual),
            _reliability(f"told, fewer than {_FEW_PAUSES} pauses", few),
            _split("length of the log", minutes),
            _split("pauses of the GPU that lost most", pauses),
            _split("a reading each", periods),
            _causes(graded),
            _kinds(usual),
        ]
    )


def _whole(cases: Sequence[Case]) -> str:
    rows = [("per machine", by_machine(cases)), ("per GPU", by_gpu(cases))]
    visible = [case for case in cases if KINDS[case.kind].is_visible]
    rows.append(("per machine, kinds whose pauses show", by_machine(visible)))
    return _table("all kinds", rows)


def _split(what: str, parts: Sequence[tuple[str, Sequence[Case]]]) -> str:
    return _table(what, [(name, by_machine(part)) for name, part in parts if part])


def _table(what: str, rows: Sequence[tuple[str, Sequence[Told]]]) -> str:
    head = (
        f"| {what} | logs | starved | told of | precision, recall at 0.5 | at 0.7 | Brier |\n"
        "|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *(_row(name, told) for name, told in rows)])


def _row(name: str, told: Sequence[Told]) -> str:
    starved, graded = sum(one.is_starved for one in told), [one for one in told if one.is_graded]
    right = [_right(told, threshold) for threshold in THRESHOLDS]
    return (
        f"| {name} | {len(told):,} | {starved:,} | {len(graded):,} | "
        f"{' | '.join(right)} | {brier(graded):.3f} |"
    )


def precision(told: Sequence[Told], threshold: float) -> float:
    """Of the accused, the share that is starved."""
    accused = [one.is_starved for one in told if one.is_graded and one.probability >= threshold]
    return sum(accused) / len(accused) if accused else float("nan")


def recall(told: Sequence[Told], threshold: float) -> float:
    """Of the starved, the share that is accused."""
    starved = [one.is_graded and one.probability >= threshold for one in told if one.is_starved]
    return sum(starved) / len(starved) if starved else float("nan")


def brier(told: Sequence[Told]) -> float:
    """Mean squared error of the probabilities that were told."""
    errors = [(one.probability - one.is_starved) ** 2 for one in told]
    return sum(errors) / len(errors) if errors else float("nan")


def _right(told: Sequence[Told], threshold: float) -> str:
    return f"{precision(told, threshold):.3f}, {recall(told, threshold):.3f}"


def _baselines(cases: Sequence[Case]) -> str:
    """Per machine, of whole logs: the only ones that all of them can be asked of."""
    whole = [case for case in cases if GPUPROF in case.accused_by]
    lines = ["| rule, whole logs, per machine | precision | recall |", "|---|---|---|"]
    ours = by_machine(whole)
    for name, threshold in (("**gpumon, p ≥ 0.5**", 0.5), ("**gpumon, p ≥ 0.7**", 0.7)):
        lines.append(
            f"| {name} | {precision(ours, threshold):.3f} | {recall(ours, threshold):.3f} |"
        )
    machines: dict[tuple[str, int, float], list[Case]] = {}
    for case in whole:
        machines.setdefault(case.machine, []).append(case)
    for rule in _BASELINES:
        told = [
            Told(
                float(any(case.accused_by[rule] for case in gpus)),
                any(case.is_starved for case in gpus),
                True,
            )
            for gpus in machines.values()
        ]
        lines.append(f"| {rule} | {precision(told, 0.5):.3f} | {recall(told, 0.5):.3f} |")
    return "\n".join(lines)


def _hard(cases: Sequence[Case], forest: Mapping[int, float] | None) -> str:
    hard = [
        (at, case)
        for at, case in enumerate(cases)
        if case.kind in HARD_KINDS and case.period_s <= _USUAL_PERIOD_S
    ]
    rows = [("gpumon", by_machine(case for _, case in hard))]
    if forest is not None:
        said = {id(case): forest.get(at, 0.0) for at, case in hard}
        rows.append(
            ("a forest on the same features",
             by_machine((case for _, case in hard), lambda case: said[id(case)]))
        )  # fmt: skip
    return _table("the nine hard kinds", rows)


def _reliability(what: str, cases: Sequence[Case]) -> str:
    """Per machine: what was told, and how often it was so."""
    told = [one for one in by_machine(cases) if one.is_graded]
    lines = [f"| {what} | logs | mean told | starved | off |", "|---|---|---|---|---|"]
    for tenth in range(_TENTHS):
        part = [one for one in told if min(_TENTHS - 1, int(one.probability * _TENTHS)) == tenth]
        if not part:
            continue
        mean = float(np.mean([one.probability for one in part]))
        starved = float(np.mean([one.is_starved for one in part]))
        few = "" if len(part) >= _FEW else " (few)"
        lines.append(
            f"| {tenth / _TENTHS:.1f} to {(tenth + 1) / _TENTHS:.1f} | {len(part):,}{few} | "
            f"{mean:.3f} | {starved:.3f} | {100 * (starved - mean):+.1f} points |"
        )
    return "\n".join(lines)


def _kinds(cases: Sequence[Case]) -> str:
    lines = [
        "| kind | logs | starved | told of | mean told | at 0.5 | at 0.7 |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        told = by_machine(case for case in cases if case.kind == kind)
        graded = [one.probability for one in told if one.is_graded]
        if not told:
            continue
        mean = f"{np.mean(graded):.2f}" if graded else ""
        lines.append(
            f"| {kind} | {len(told)} | {sum(one.is_starved for one in told)} | {len(graded)} | "
            f"{mean} | {sum(p >= 0.5 for p in graded)} | {sum(p >= 0.7 for p in graded)} |"
        )
    return "\n".join(lines)


def _causes(graded: Sequence[Case]) -> str:
    """Of machines whose time is lost to something else, whether that is what is named first."""
    lines = ["| lost to | logs | named first | named at all |", "|---|---|---|---|"]
    for cause in LikelyCause:
        named = [
            case.suspicion.likely_causes
            for case in graded
            if case.suspicion and KINDS[case.kind].lost_to is cause
        ]
        if named:
            first, named_at_all = (
                sum(causes[0] is cause for causes in named),
                sum(cause in causes for causes in named),
            )
            lines.append(
                f"| {cause.value} | {len(named):,} | {first / len(named):.0%} | "
                f"{named_at_all / len(named):.0%} |"
            )
    return "\n".join(lines)

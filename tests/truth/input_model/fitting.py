"""A logistic model with a fixed prior and signed weights, fitted by Newton's method."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpumon.core.accounting.suspicion import term_values
from gpumon.core.settings.input_model import AT_LEAST, PRIOR, RARE, TERMS
from tests.truth.input_model.cases import Case, worst_of_each_machine

Floats = NDArray[np.float64]
_SIGNS: Final = {name: 1.0 if name == "varying_bursts" else -1.0 for name in TERMS}
"""The sign of each weight; a fit may set it to 0, but never reverse it."""
_RIDGE: Final = 0.0004
"""For each case."""
_ROUNDS: Final = 200
_STEP: Final = 0.5
_PRECISION: Final = 1e-6


def fitted(cases: Sequence[Case]) -> list[float]:
    """The weights fitted on these cases, in the order of ``TERMS``.

    Cases whose pauses cost too little for a verdict are left out, because no weight decides there.
    """
    graded, values = [], []
    for case, is_starved in worst_of_each_machine(cases):
        shape = case.suspicion.shape if case.suspicion else None
        if shape is not None and shape.paused_ratio >= RARE:
            graded.append((case, is_starved))
            values.append(term_values(shape))
    answers = np.array([is_starved for _, is_starved in graded])
    weights: list[float] = solved(np.array(values), answers, _importance(graded)).tolist()
    return weights


def _importance(graded: Sequence[tuple[Case, bool]]) -> Floats:
    """Weigh generators and their kinds equally, and the starved share as ``PRIOR``."""
    per_kind = Counter((case.family, case.kind) for case, _ in graded)
    share = np.array([1 / per_kind[case.family, case.kind] for case, _ in graded])
    for family in {case.family for case, _ in graded}:
        for wanted, prior in ((True, PRIOR), (False, 1 - PRIOR)):
            these = np.array(
                [case.family == family and is_starved == wanted for case, is_starved in graded]
            )
            if these.any():
                share[these] *= prior / share[these].sum()
    return np.asarray(share / share.sum() * len(graded))


def solved(values: Floats, is_starved: NDArray[np.bool_], importance: Floats) -> Floats:
    """The best weights within their bounds, from shapes (n, terms), (n,) and (n,)."""
    signs = np.array([*_SIGNS.values()])
    least = np.array([AT_LEAST.get(name, 0.0) for name in TERMS])
    prior = math.log(PRIOR / (1 - PRIOR))
    weights, ridge = signs * least, _RIDGE * len(values)
    for _ in range(_ROUNDS):
        probability = 1 / (1 + np.exp(-(prior + values @ weights)))
        slope = values.T @ (importance * (is_starved - probability)) - ridge * weights
        curve = importance * probability * (1 - probability)
        bend = (values * curve[:, None]).T @ values + ridge * np.eye(len(weights))
        step = _STEP * np.linalg.solve(bend, slope)
        moved = signs * np.maximum(least, signs * (weights + step))
        if np.abs(moved - weights).max() < _PRECISION:
            break
        weights = moved
    return np.asarray(np.round(weights, 2) + 0.0)

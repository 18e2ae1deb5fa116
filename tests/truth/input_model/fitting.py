"""A logistic model of features and their products, fitted by Newton's method and made small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpumon.core.settings.input_model import FARTHEST

Floats = NDArray[np.float64]
_RIDGE: Final = 40.0
_MOST_ROUNDS: Final = 15
_SMALL_STEP: Final = 1e-4
_MOST_AT_ONCE: Final = 3
"""Features in one product."""
_DROPPED_AT_ONCE: Final = 6
"""One in so many of the terms that are left goes at a time."""


class Fitted(NamedTuple):
    """What ``settings.input_model`` holds."""

    centres: Mapping[str, float]
    scales: Mapping[str, float]
    weights: Mapping[tuple[str, ...], float]


def fitted(
    names: Sequence[str], features: Floats, is_late: NDArray[np.bool_], weight: Floats, terms: int
) -> Fitted:
    """The model of so many terms.

    Args:
        names: Of the features.
        features: Shape (n, features).
        is_late: Shape (n,).
        weight: How much each counts; shape (n,).
        terms: How many may be left, with the constant one.
    """
    centres = np.round(np.median(features, axis=0), 2)
    scales = np.maximum(0.01, np.round(features.std(axis=0), 2))
    offs = np.clip((features - centres) / scales, -FARTHEST, FARTHEST)
    places = range(len(names))
    products = [
        product
        for size in range(_MOST_AT_ONCE + 1)
        for product in combinations_with_replacement(places, size)
    ]
    columns = np.column_stack([offs[:, product].prod(axis=1) for product in products])
    target = is_late.astype(float)
    kept = np.arange(len(products))
    weights = _solved(columns, target, weight)
    while len(kept) > terms:
        matters = np.abs(weights) * columns[:, kept].std(axis=0)
        matters[0] = np.inf
        drop = min(len(kept) - terms, max(1, len(kept) // _DROPPED_AT_ONCE))
        kept = np.delete(kept, np.argsort(matters)[:drop])
        weights = _solved(columns[:, kept], target, weight)
    named = [tuple(names[at] for at in products[place]) for place in kept]
    return Fitted(
        centres=dict(zip(names, centres.tolist(), strict=True)),
        scales=dict(zip(names, scales.tolist(), strict=True)),
        weights=dict(zip(named, np.round(weights, 3).tolist(), strict=True)),
    )


def _solved(columns: Floats, target: Floats, weight: Floats) -> Floats:
    weights = np.zeros(columns.shape[1])
    ridge = np.full(columns.shape[1], _RIDGE)
    ridge[0] = 0.0
    for _ in range(_MOST_ROUNDS):
        said = 1 / (1 + np.exp(-columns @ weights))
        slope = columns.T @ (weight * (target - said)) - ridge * weights
        bend = (columns * (weight * said * (1 - said))[:, None]).T @ columns + np.diag(ridge)
        step = np.linalg.solve(bend, slope)
        weights = weights + step
        if np.abs(step).max() < _SMALL_STEP:
            break
    return weights

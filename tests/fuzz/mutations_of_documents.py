"""Lies in JSON: values that no one would write, wherever something stands in a document."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.fuzz.mutations import SIGNS

HONEST: Final = "honest"
"""The run of whoever plays fair, whose name others may take."""
_SIGNS: Final = tuple(sign.decode("utf-8", "surrogateescape") for sign in SIGNS)
JUNK: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 7, 1 << 39, 1 << 53, 1 << 62, 1 << 63, 1 << 64, -(1 << 62),
    10**300, 10**400, 0.5, -0.5, 0.999, 1.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"),
    "", "0", "1", "0:1", "0,1", "GPU-0", "a" * 2_900, "x" * 4_000, "é" * 9, "é" * 128,
    "\ud800", "\\ud800", "_other", HONEST, "lie", *_SIGNS, *(sign * 50 for sign in _SIGNS[:8]),
    [], {}, [[]], [[[]]], [1, None], [0, 1, 0.5], ["0"], ["0", "1"], ["0"] * 300,
    {"": None}, {"a": 1}, {"0": 0.5, "1": 0.5}, {"0": 1, "1": -1}, {"0": float("nan")},
    {"a" * 200: 1, "a" * 201: 2}, {"": "", "b": 1e308}, {"x": 1 << 62, "y": 1 << 62},
    *({sign: 1} for sign in _SIGNS),
)  # fmt: skip
"""Anything that JSON can say, and some that it cannot."""


def lied(random: Random, document: Any) -> Any:
    """One value of it, however deep, is another one."""
    if not isinstance(document, (dict, list)) or not document or random.random() < 0.1:
        return random.choice(JUNK)
    keys = list(document) if isinstance(document, dict) else range(len(document))
    key = random.choice(keys)
    if isinstance(document, dict) and random.random() < 0.1:
        return {name: value for name, value in document.items() if name != key}
    changed: Any = document.copy()
    changed[key] = lied(random, document[key])
    return changed

"""Logs that one would be tempted to accuse, and one that deserves it: utilisation, a row a second.

Of the shape of logs that strangers published; every number is made here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final


def _cycles(bursts_and_pauses_s: Iterable[tuple[float, float]]) -> list[int]:
    rows: list[int] = []
    for burst_s, pause_s in bursts_and_pauses_s:
        rows += [97] * max(1, round(burst_s)) + [0] * max(1, round(pause_s))
    return [*rows, 97]


def _desktop() -> list[int]:
    draws, rows = random.Random(1), []
    for _ in range(45):
        level = draws.choice([0, 0, 3, 8, 15, 30, 45, 60])
        length_s = round(4 * draws.lognormvariate(0.0, 1.0)) + 1
        rows += [max(0, round(draws.gauss(level, 4))) for _ in range(length_s)]
    return rows


def _requests_by_hand() -> list[int]:
    draws = random.Random(2)
    return _cycles(
        (6 * draws.lognormvariate(0.0, 0.7), 25 * draws.lognormvariate(0.0, 0.8)) for _ in range(24)
    )


def _federated_client() -> list[int]:
    draws = random.Random(3)
    return _cycles((32, 14 * draws.lognormvariate(0.0, 0.35)) for _ in range(20))


def _six_pauses() -> list[int]:
    draws = random.Random(5)
    return [*_cycles((50, draws.gauss(10, 1.5)) for _ in range(6)), *[97] * 50]


def _late_loader() -> list[int]:
    draws = random.Random(4)
    return _cycles((draws.gauss(7.0, 2.0), draws.gauss(4.0, 0.5)) for _ in range(70))


TEMPTING: Final[Mapping[str, list[int]]] = MappingProxyType(
    {
        "a desktop": _desktop(),
        "requests to a language model, by hand": _requests_by_hand(),
        "a federated client": _federated_client(),
        "six pauses, one a minute": _six_pauses(),
        "two pauses and a blip": [*[97] * 30, *[0] * 30, *[97] * 20, *[0] * 25, 97, *[0] * 25, 97],
    }
)
"""None of these waits for its input."""
LATE: Final = _late_loader()
"""A loader whose workers finish together, and which is too slow."""

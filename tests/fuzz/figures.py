"""What is true of every report, whatever it was made from."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

_RATIO: Final = re.compile(r"_(ratio|probability)$")
_TEXT: Final = ("text", "evidence", "notes")
_SLACK_S: Final = 2.0
"""A ring may be written while it is read, and clocks are believed to the second."""
_MAY_BE_NEGATIVE: Final = ("starved_intervals", "loader")
"""A log's pause may begin before its first stamp; a run reports its loader itself."""


def parsed(document: str | bytes) -> Any:
    """JSON, in which no browser and no `jq` finds a NaN."""
    return json.loads(document, parse_constant=_refuse)


def _refuse(word: str) -> NoReturn:
    raise AssertionError(f"{word} in JSON")


def check_report(report: dict[str, Any]) -> None:
    """The sums close, and no figure is impossible."""
    assert report["gpus"]
    for gpu in report["gpus"]:
        observed_s, idle_s = gpu["observed_seconds"], gpu["idle_seconds"]
        assert _close(gpu["busy_seconds"] + idle_s + gpu["pending_seconds"], observed_s)
        assert _close(sum(gpu["idle_by_cause"].values()), idle_s)
        assert gpu["suspected_seconds"] + gpu["starved_seconds"] <= idle_s + 1e-6
        assert observed_s <= report["observed_seconds"] + 1e-6
    for run in report["runs"]:
        most_s = run["wall_seconds"] + _SLACK_S
        assert all(spent_s <= most_s for spent_s in run["phase_seconds"].values()), run
    check_figures(report, "")


def _close(one_s: float, other_s: float) -> bool:
    return math.isclose(one_s, other_s, abs_tol=1e-6, rel_tol=1e-9)


def check_figures(value: object, name: str) -> None:
    """Every number is finite, none below 0, no ratio above 1; every text can be printed."""
    if isinstance(value, dict):
        for key, inner in value.items():
            check_figures(inner, "loader" if name == "loader" else key)
    elif isinstance(value, list):
        for inner in value:
            check_figures(inner, name)
    elif isinstance(value, str):
        assert value.replace("\n", "").isprintable() or name in _TEXT, (name, value)
        value.encode()
    elif isinstance(value, (int, float)):
        assert math.isfinite(value), (name, value)
        assert value >= 0 or name in _MAY_BE_NEGATIVE, (name, value)
        assert value <= 1 + 1e-9 or not _RATIO.search(name), (name, value)

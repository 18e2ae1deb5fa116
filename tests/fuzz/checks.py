"""What must hold for every input: a command's output, and the figures of a report."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from typing import Any, Final, NoReturn

from gpumon.cli.main import main

_SENTENCES: Final = re.compile(r"(gpumon: [^\n]+\n)+")
_RATIO: Final = re.compile(r"_(ratio|probability)$")
_TEXT: Final = ("text", "evidence", "notes")
_SLACK_S: Final = 2.0
"""A ring may be written while it is read."""
_MAY_BE_NEGATIVE: Final = ("starved_intervals", "loader")
"""A pause may begin before the first stamp of a log; a run reports its loader itself."""


def checked_output(*words: str) -> str:
    """The output of a command in this process: it succeeds, or fails with sentences."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    printed, complaint = out.getvalue(), err.getvalue()
    assert code in (0, 1, 2), (code, complaint)
    assert printed or complaint
    assert _SENTENCES.fullmatch(complaint) if code else complaint == "", complaint
    printed.encode()  # no lone surrogate
    return printed


def parsed(document: str | bytes) -> Any:
    """JSON without NaN and infinity, which browsers and `jq` refuse."""
    return json.loads(document, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} in JSON")


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
    _check_figures(report, "")


def _close(one_s: float, other_s: float) -> bool:
    return math.isclose(one_s, other_s, abs_tol=1e-6, rel_tol=1e-9)


def _check_figures(value: object, name: str) -> None:
    """Numbers are finite and not negative, ratios at most 1, and texts printable."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_figures(inner, "loader" if name == "loader" else key)
    elif isinstance(value, list):
        for inner in value:
            _check_figures(inner, name)
    elif isinstance(value, str):
        assert value.replace("\n", "").isprintable() or name in _TEXT, (name, value)
        value.encode()
    elif isinstance(value, (int, float)):
        assert math.isfinite(value), (name, value)
        assert value >= 0 or name in _MAY_BE_NEGATIVE, (name, value)
        assert value <= 1 + 1e-9 or not _RATIO.search(name), (name, value)

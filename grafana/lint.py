"""Checks what Grafana's schema does not: ``python -m grafana.lint`` lists findings.

Each exclusion is written below, with its reason. ``tests/unit/grafana`` keeps the list of findings
empty, and every exclusion needed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "dashboards"
FLEET: Final = "gpumon-fleet"
HOST: Final = "gpumon-host"
RUN: Final = "gpumon-run"

BOUNDS: Final = {HOST: ("$host",), RUN: ("$run", "$run_gpu")}
"""A dashboard reads raw series only with one of these variables, which never select a fleet."""
FLEET_SERIES: Final = re.compile(r"\w+:\w+:\w+|ALERTS|up")
WINDOWS: Final = {"$__range", "$__rate_interval", "$__interval"}

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)")
_SELECTOR: Final = re.compile(r"\b(gpumon_\w+|\w+:\w+:[\w$]+|ALERTS|up)\b(?!\s*\()(\{[^}]*\})?")
_WINDOW: Final = re.compile(r"(?<=[\w}])\[([^\]]+)\]")
_LINK: Final = re.compile(r"^/d/([\w-]+)")


class Finding(NamedTuple):
    """A broken rule.

    Attributes:
        where: UID of the dashboard, and title of the panel or name of the variable or annotation.
        rule: Its name.
        text: What is wrong.
    """

    where: str
    rule: str
    text: str


EXCLUSIONS: Final[dict[tuple[str, str], str]] = {
    (f"{FLEET}/Hosts and GPUs", "empty-state"): "a fleet without GPUs in use still has GPUs",
    (f"{FLEET}/Hosts and GPUs", "window"): "the latest tile of five minutes, whatever is shown",
    (f"{FLEET}/GPUs missing or in trouble", "window"): "as for Hosts and GPUs",
    (f"{FLEET}/Alerts that fire now", "window"): "as for Hosts and GPUs",
    (f"{FLEET}/Coverage", "empty-state"): "time is covered or not, whether GPUs are used or not",
    (f"{FLEET}/Coverage over time", "empty-state"): "as for Coverage",
    (f"{FLEET}/Where the GPU time went", "empty-state"): "has a band 'not in use'",
    (f"{HOST}/Where the GPU time went", "empty-state"): "has a band 'not in use'",
    (f"{HOST}/How full the GPUs are", "empty-state"): "an unused board reports 0, not nothing",
    (f"{HOST}/Power against its limit", "empty-state"): "an unused board draws power",
    (f"{HOST}/Temperature", "empty-state"): "an unused board has a temperature",
    (f"{HOST}/Power", "empty-state"): "an unused board draws power",
    (f"{HOST}/Power of busy, lost and unused time", "empty-state"): "has a band 'not in use'",
    (f"{HOST}/Power of busy, lost and unused time", "window"): (
        "energy counters grow every 30 s, so that a shorter window shows steps"
    ),
    (f"{HOST}/Memory in use", "empty-state"): "an unused board has memory",
    (f"{HOST}/Clocks", "empty-state"): "an unused board has clocks",
    (f"{HOST}/Use of each GPU, by cause", "empty-state"): "has a bar 'not in use'",
    (f"{HOST}/Collectors", "empty-state"): "the daemon reads whether GPUs are used or not",
    (f"{HOST}/Time of the last read", "empty-state"): "as for Collectors",
    (f"{HOST}/Ticks without samples", "empty-state"): "as for Collectors",
    (f"{HOST}/Memory errors (ECC)", "counter"): (
        "the first error of a series is invisible to increase(), and a count since the driver was "
        "loaded is what a replacement of the board is decided on"
    ),
    (f"{HOST}/XID errors", "counter"): "the first error of an XID is invisible to increase()",
    (f"{RUN}/Its GPUs", "empty-state"): (
        "a run without GPUs has no row; 'Lost by this run' says 'not in use'"
    ),
    (f"{RUN}/Busy share of its GPUs", "empty-state"): "as for Its GPUs",
    (f"{RUN}/Epochs", "window"): "an annotation has no $__rate_interval",
    (f"{RUN}/Ratio changes", "window"): "an annotation has no $__rate_interval",
}
"""Reasons by place and rule."""


class Query(NamedTuple):
    """An expression, and where it is."""

    where: str
    expr: str
    is_instant: bool


def dashboards() -> dict[str, dict[str, Any]]:
    """The committed files by UID."""
    loaded = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
    ]
    return {one["uid"]: one for one in loaded}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels with queries."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board: dict[str, Any]) -> Iterator[Query]:
    """Expressions of panels, variables and annotations."""
    uid = board["uid"]
    for panel in panels(board):
        for target in panel["targets"]:
            where = f"{uid}/{panel['title']}"
            yield Query(where, target["expr"], bool(target.get("instant")))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield Query(f"{uid}/${variable['name']}", variable["query"], True)
    for note in board["annotations"]["list"]:
        yield Query(f"{uid}/{note['name']}", note["expr"], False)


def plain(expr: str) -> str:
    """Variables without braces, so that braces are selectors."""
    return _VARIABLE.sub(lambda found: f"${found[1] or found[2]}", expr)


def selectors(expr: str) -> list[tuple[str, str]]:
    """Names and matchers of all series."""
    return [(found[1], found[2] or "") for found in _SELECTOR.finditer(plain(expr))]


# -- rules ---------------------------------------------------------------------------


def _data_source(board: dict[str, Any]) -> Iterator[Finding]:
    uid = board["uid"]
    used = [panel.get("datasource") for panel in panels(board)]
    used += [target["datasource"] for panel in panels(board) for target in panel["targets"]]
    used += [note["datasource"] for note in board["annotations"]["list"]]
    variables = board["templating"]["list"]
    used += [one["datasource"] for one in variables if one["type"] == "query"]
    for source in used:
        if source is not None and source.get("uid") != "${datasource}":
            yield Finding(uid, "data-source", f"{source} is not the selected one")
    first, *others = variables
    names = [one["name"] for one in board.get("__inputs", [])]
    if first["name"] != "datasource" or first["type"] != "datasource" or len(names) != 1:
        yield Finding(uid, "data-source", "no variable `datasource`, or not one input")
        return
    # A provisioned file is read as it is: only the value of the variable may need an input.
    if first["current"]["value"] != f"${{{names[0]}}}":
        yield Finding(uid, "data-source", "the input is not the first value of the variable")
    rest = {**board, "__inputs": [], "templating": {"list": others}}
    if names[0] in json.dumps(rest):
        yield Finding(uid, "data-source", f"{names[0]} is used outside the variable")


def _texts(board: dict[str, Any]) -> Iterator[Finding]:
    for panel in panels(board):
        where = f"{board['uid']}/{panel['title']}"
        config = panel["fieldConfig"]["defaults"]
        if len(panel.get("description", "")) < 60:
            yield Finding(where, "description", "too short")
        if not config.get("unit"):
            yield Finding(where, "unit", "none")
        if "noValue" in config or "No data" not in panel.get("description", ""):
            yield Finding(where, "no-data", "its description does not say when it is empty")
        if not any(re.search(r"\* 0\b", target["expr"]) for target in panel["targets"]):
            yield Finding(where, "empty-state", "no query has a value when nothing is in use")
        refs = [target["refId"] for target in panel["targets"]]
        if len(refs) != len(set(refs)):
            yield Finding(where, "refs", f"not unique: {refs}")
    titles = [panel["title"] for panel in panels(board)]
    if len(titles) != len(set(titles)):
        yield Finding(board["uid"], "title", "not unique")


def _windows(board: dict[str, Any]) -> Iterator[Finding]:
    for query in queries(board):
        found = set(_WINDOW.findall(query.expr))
        allowed = {"$__range"} if query.is_instant else WINDOWS - {"$__range"}
        if found - allowed:
            yield Finding(query.where, "window", f"{sorted(found - allowed)}")


def _tiles(board: dict[str, Any]) -> Iterator[Finding]:
    """A step that is shorter than a tile would show gaps."""
    for panel in panels(board):
        for target in panel["targets"]:
            if "$__interval" in target["expr"] and target.get("interval") != "${tile}":
                where = f"{board['uid']}/{panel['title']}"
                yield Finding(where, "tile", f"{target['refId']} has steps shorter than a tile")


def _counters(board: dict[str, Any]) -> Iterator[Finding]:
    for query in queries(board):
        text = plain(query.expr)
        for found in re.finditer(r"gpumon_\w+_(?:total|bucket|count)\b", text):
            before = text[: found.start()]
            if not before.endswith(("rate(", "increase(", "changes(")):
                yield Finding(query.where, "counter", f"{found[0]} without rate or increase")
        for found in re.finditer(r"(?:rate|increase)\((\w+)", text):
            if not found[1].endswith(("_total", "_bucket", "_count")):
                yield Finding(query.where, "counter", f"{found[1]} is no counter")
        for found in re.finditer(r"avg_over_time\(([\w:$]+)", text):
            if ":increase" not in found[1]:
                yield Finding(query.where, "counter", "averages of gauges depend on the scrapes")


def _bounded(board: dict[str, Any]) -> Iterator[Finding]:
    """No query reads, and none joins, a series of each GPU of a fleet."""
    uid = board["uid"]
    choices = {f"{uid}/${name}" for name in ("job", "host", "run")}
    for query in queries(board):
        if query.where in choices:  # what the others are bounded by
            continue
        for name, matchers in selectors(query.expr):
            if uid == FLEET:
                fits = bool(FLEET_SERIES.fullmatch(name.replace("$", "")))
            else:
                fits = any(re.search(rf"\{bound}\b", matchers) for bound in BOUNDS[uid])
            if not fits:
                yield Finding(query.where, "bounded", f"{name}{matchers} reads the whole fleet")
        if uid == FLEET and re.search(r"\b(on|group_left|group_right)\s*\([^)]*uuid", query.expr):
            yield Finding(query.where, "bounded", "joins by GPU")


def _variables(board: dict[str, Any]) -> Iterator[Finding]:
    names = {one["name"] for one in board["templating"]["list"]}
    for query in queries(board):
        for found in _VARIABLE.finditer(query.expr):
            name = found[1] or found[2]
            if name not in names and not name.startswith("__") and not name.isdigit():
                yield Finding(query.where, "variable", f"${name} does not exist")


def _links(board: dict[str, Any], boards: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    uid = board["uid"]
    for link in board["links"]:
        found = _LINK.match(link["url"])
        if not (found and found[1] in boards and link["keepTime"] and link["includeVars"]):
            yield Finding(
                uid, "link", f"{link['url']} keeps no time or variables, or leads nowhere"
            )
    for panel in panels(board):
        for override in panel["fieldConfig"]["overrides"]:
            for setting in override["properties"]:
                for link in setting["value"] if setting["id"] == "links" else ():
                    where = f"{uid}/{panel['title']}"
                    if wrong := _wrong_link(link["url"], boards):
                        yield Finding(where, "link", wrong)


def _wrong_link(url: str, boards: dict[str, dict[str, Any]]) -> str | None:
    found = _LINK.match(url)
    if not found or found[1] not in boards:
        return f"{url} leads nowhere"
    if "${__url_time_range}" not in url or "${__all_variables}" not in url:
        return f"{url} does not keep the time and the variables"
    names = {one["name"] for one in boards[found[1]]["templating"]["list"]}
    unknown = set(re.findall(r"var-(\w+)=", url)) - names
    return f"{url}: {found[1]} has no {sorted(unknown)}" if unknown else None


def _grid(board: dict[str, Any]) -> Iterator[Finding]:
    for panel in board["panels"]:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            yield Finding(f"{board['uid']}/{panel['title']}", "grid", "beyond the right border")
    for one, other in combinations(board["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        if (
            a["x"] < b["x"] + b["w"]
            and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"]
            and b["y"] < a["y"] + a["h"]
        ):
            yield Finding(f"{board['uid']}/{one['title']}", "grid", f"overlaps {other['title']}")


RULES: Final = (_data_source, _texts, _windows, _tiles, _counters, _bounded, _variables, _grid)


def findings(boards: dict[str, dict[str, Any]]) -> list[Finding]:
    """All findings, also those that are excluded."""
    found = [finding for board in boards.values() for rule in RULES for finding in rule(board)]
    found += [finding for board in boards.values() for finding in _links(board, boards)]
    return sorted(set(found))


def main() -> int:
    """Print findings without an exclusion, and exclusions without a finding."""
    found = findings(dashboards())
    wrong = [one for one in found if (one.where, one.rule) not in EXCLUSIONS]
    unused = EXCLUSIONS.keys() - {(one.where, one.rule) for one in found}
    for one in wrong:
        print(f"{one.where}: {one.rule}: {one.text}")
    for where, rule in sorted(unused):
        print(f"{where}: {rule}: this exclusion is not needed")
    return 1 if wrong or unused else 0


if __name__ == "__main__":
    sys.exit(main())

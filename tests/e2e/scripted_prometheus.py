"""A Prometheus that scraped a script, and recorded the rules of the repository meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.fleet_block import make_blocks
from tests.builders.scripted_hosts import Hours, write_file
from tests.e2e.prometheus_server import Prometheus, Sample, running_prometheus
from tests.needs import needed

RULES: Final = Path(__file__).resolve().parents[2] / "prometheus" / "rules.yml"
# Prometheus marks the end of a recorded series, and a file cannot: look back less than a tile.
NO_LONGER: Final = "--query.lookback-delta=299s"
NOW_S: Final = Hours().span.last_s
"""When the half hour of the script has ended, so that counters and tiles are of the same time."""
SHOWN_S: Final = 1800
SENT: Final = {
    "__rate_interval": "1m",
    "__range": f"{SHOWN_S}s",
    "__range_s": str(SHOWN_S),
    "__interval": "5m",
    "__interval_ms": "300000",
    "host": "node-000",
    "run": "resnet",
    "run_gpu": "GPU-00000000-000[01]",
}
"""Variables for the half hour, a host and its run."""
UNUSED_SENT: Final = {**SENT, "run": "queued"}
EVALUATED_S: Final = 7
"""Prometheus evaluates a group some seconds after the full minute."""


@contextmanager
def prometheus_after(hours: Hours, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus with all scrapes and all recorded series of a script."""
    binary = needed("prometheus")
    needed("promtool", "prometheus")
    scrapes = folder / "scrapes.txt"
    write_file(hours, scrapes)
    make_blocks(scrapes, folder / "tsdb")
    known: set[str] = set()
    while True:
        with running_prometheus(binary, folder, [], rules=(RULES,), flags=(NO_LONGER,)) as server:
            ready = [rule for rule in _recording_rules(server) if rule["name"] not in known]
            if not ready:
                yield server
                return
            waiting = {rule["name"] for rule in ready}
            ready = [rule for rule in ready if not _names(rule["query"]) & waiting - {rule["name"]}]
            assert ready, f"rules that need each other: {waiting}"
            lines = [line for rule in ready for line in _recorded(server, rule, hours)]
        known |= {rule["name"] for rule in ready}
        if lines:
            text = folder / "recorded.txt"
            text.write_text("".join(lines), encoding="utf-8")
            make_blocks(text, folder / "tsdb")


def _recording_rules(server: Prometheus) -> list[dict[str, Any]]:
    return [
        {**rule, "interval": group["interval"]}
        for group in server.ask("rules")["groups"]
        for rule in group["rules"]
        if rule["type"] == "recording"
    ]


def _names(expr: str) -> set[str]:
    return set(re.findall(r"\b\w+:[\w:]+", expr))


def _recorded(server: Prometheus, rule: dict[str, Any], hours: Hours) -> Iterator[str]:
    """What a rule records in the time of the script, as OpenMetrics."""
    span, interval = hours.span, int(rule["interval"])
    if interval > span.seconds:
        return
    # A tile ends a minute before its evaluation, which is here moved to just before its end: a
    # range includes both of its ends, and would have two tiles if it began and ended with one.
    later_s = EVALUATED_S + (60 if "[5m] offset 1m" in rule["query"] else 0)
    series: list[Sample] = server.over_time(
        rule["query"],
        seconds=span.seconds - interval,
        step=interval,
        end=span.last_s + later_s,
    )
    for one in series:
        labels = {**one["metric"], **rule.get("labels", {})}
        labels.pop("__name__", None)
        inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
        for at, value in one["values"]:
            yield f"{rule['name']}{{{inside}}} {value} {at - later_s - 1}\n"

"""A report on many machines as the ``gpumon.fleet/1`` document. Numbers are not rounded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

from gpumon.core.fleet.fleet_report import (
    DIMENSIONS,
    FleetReport,
    Loser,
    Prices,
    Ranking,
    cost,
    energy_cost,
)
from gpumon.core.wording import label_text

FLEET_SCHEMA: Final = "gpumon.fleet/1"


def encode_fleet_report(report: FleetReport) -> dict[str, Any]:
    """The document: seconds of GPU time, joules, ratios 0 to 1; ``None``: unknown."""
    price = report.prices.gpu_hour
    return {
        "schema": FLEET_SCHEMA,
        "source": report.source,
        "started_at": _stamp(report.started_at),
        "ended_at": _stamp(report.ended_at),
        "tile_seconds": report.tile_seconds,
        "known_tiles": report.known_tiles,
        "all_tiles": report.all_tiles,
        "first_tile_at": _stamp(report.first_tile_at),
        "hosts": report.hosts,
        "gpus": report.gpus,
        "coverage_ratio": report.coverage_ratio,
        "expected_seconds": report.expected_seconds,
        "observed_seconds": report.observed_seconds,
        "busy_seconds": report.busy_seconds,
        "lost_seconds": report.lost_seconds,
        "lost_ratio": report.lost_ratio,
        "not_in_use_seconds": report.not_in_use_seconds,
        "lost_by_cause": _named(report.lost_by_cause),
        "input_wait_by_reason": _named(report.input_wait_by_reason),
        "energy_joules_by_use": _named(report.energy_by_use),
        "price_per_gpu_hour": price,
        "price_per_kwh": report.prices.kwh,
        "lost_price": cost(report.lost_seconds, price),
        "not_in_use_price": cost(report.not_in_use_seconds, price),
        "lost_energy_price": energy_cost(report.energy_by_use.get("lost"), report.prices.kwh),
        "few_runs": [
            {
                "cause": few.cause,
                "runs": [label_text(run) for run in few.runs],
                "users": [label_text(user) for user in few.users] or None,
                "lost_seconds": few.lost_seconds,
            }
            for few in report.few_runs
        ],
        "worst": {
            **dict.fromkeys(dimension.name for dimension in DIMENSIONS),
            **{one.dimension.name: _ranking(one, report.prices) for one in report.rankings},
        },
        "warnings": list(report.warnings),
        "notes": list(report.notes),
    }


def _ranking(ranking: Ranking, prices: Prices) -> dict[str, Any]:
    rest = ranking.rest
    return {
        "worst": [_loser(loser, prices) for loser in ranking.worst],
        "others": None
        if rest is None
        else {"count": rest.number, "lost_seconds": rest.lost_seconds},
        "unassigned_lost_seconds": ranking.unnamed_lost_seconds,
    }


def _loser(loser: Loser, prices: Prices) -> dict[str, Any]:
    return {
        "name": label_text(loser.name),
        "busy_seconds": loser.busy_seconds,
        "lost_seconds": loser.lost_seconds,
        "lost_ratio": loser.lost_ratio,
        "lost_by_cause": _named(loser.lost_by_cause),
        "lost_price": cost(loser.lost_seconds, prices.gpu_hour),
        "users": [label_text(user) for user in loser.users] or None,
        "hosts": [label_text(host) for host in loser.hosts] or None,
    }


def _named(sums: Mapping[str, float]) -> dict[str, float]:
    return {label_text(name): value for name, value in sums.items()}


def _stamp(unix_s: float | None) -> str | None:
    if unix_s is None:
        return None
    return datetime.fromtimestamp(unix_s, timezone.utc).isoformat(timespec="seconds")

"""How full a GPU is, as an object of JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.core.fill.gpu_fill import (
    NO_FILL,
    GpuFill,
    Mean,
    is_held_down,
    is_under_filled,
    known_ratio,
)
from gpumon.core.units import nanoseconds, seconds


def encode_fill(fill: GpuFill | None) -> dict[str, Any]:
    """Ratios over busy time, 0 to 1; ``None`` where unknown.

    ``observed_seconds`` is the busy time that the evidence covers,
    ``power_seconds`` that of power; ``under_filled`` and ``held_down`` follow
    from the rest.
    """
    fill = NO_FILL if fill is None else fill
    evidence = fill.evidence
    return {
        "evidence": None if evidence is None else evidence.value,
        "observed_seconds": seconds(fill.observed_ns),
        "sm_active_ratio": fill.sm_active.ratio,
        "sm_occupancy_ratio": fill.sm_occupancy.ratio,
        "tensor_active_ratio": fill.tensor_active.ratio,
        "memory_bandwidth_ratio": fill.memory_bandwidth.ratio,
        "power_ratio": fill.power_ratio,
        "power_watts": fill.power_watts,
        "power_limit_watts": fill.power_limit_watts,
        "power_seconds": seconds(fill.power_ns),
        "sm_clock_ratio": fill.sm_clock.ratio,
        "held_ratio": fill.held_ratio,
        "held_known_seconds": seconds(fill.held_known_ns),
        "held_seconds_by_reason": {name: seconds(ns) for name, ns in fill.held_by_ns.items()},
        "under_filled": is_under_filled(fill),
        "held_down": is_held_down(fill),
    }


def brief_fill(fill: GpuFill) -> dict[str, Any]:
    """As ``encode_fill``, with no more than who looks once a second needs: this runs each tick."""
    evidence = fill.evidence
    return {
        "evidence": None if evidence is None else evidence.value,
        "sm_active_ratio": fill.sm_active.ratio,
        "power_watts": fill.power_watts,
        "power_limit_watts": fill.power_limit_watts,
        "held_ratio": fill.held_ratio,
        "held_mostly_by": max(fill.held_by_ns, key=fill.held_by_ns.__getitem__, default=None),
        "under_filled": is_under_filled(fill),
        "held_down": is_held_down(fill),
    }


def decode_fill(document: Mapping[str, Any] | None) -> GpuFill | None:
    """The sums behind the ratios, as far as the document tells them.

    Every share of activity is taken to cover all of ``observed_seconds``.

    Raises:
        TypeError: A value is no number.
        ValueError: It is not a finite one.
    """
    if not document:
        return None
    power_ns = _ns(document.get("power_seconds"))
    held_known_ns = _ns(document.get("held_known_seconds"))
    # What covers the clock's mean is not told: any time gives the same mean.
    activity_ns = _ns(document.get("observed_seconds")) if document["evidence"] == "gpm" else 0
    clock_ns = max(activity_ns, power_ns, held_known_ns)
    fill = GpuFill(
        sm_active=_mean(document.get("sm_active_ratio"), activity_ns),
        sm_occupancy=_mean(document.get("sm_occupancy_ratio"), activity_ns),
        tensor_active=_mean(document.get("tensor_active_ratio"), activity_ns),
        memory_bandwidth=_mean(document.get("memory_bandwidth_ratio"), activity_ns),
        power_ns=power_ns,
        power_mw_ns=round(1000 * float(document.get("power_watts") or 0.0)) * power_ns,
        power_limit_mw_ns=round(1000 * float(document.get("power_limit_watts") or 0.0)) * power_ns,
        sm_clock=_mean(document.get("sm_clock_ratio"), clock_ns),
        held_known_ns=held_known_ns,
        held_ns=round(float(document.get("held_ratio") or 0.0) * held_known_ns),
        held_by_ns={
            str(name): _ns(value)
            for name, value in dict(document.get("held_seconds_by_reason") or {}).items()
        },
    )
    return None if fill._replace(held_by_ns=NO_FILL.held_by_ns) == NO_FILL else fill


def _mean(raw: float | None, known_ns: int) -> Mean:
    ratio = known_ratio(None if raw is None else float(raw))
    return Mean() if ratio is None or not known_ns else Mean(known_ns, round(ratio * known_ns))


def _ns(duration_s: float | None) -> int:
    return nanoseconds(float(duration_s or 0.0))

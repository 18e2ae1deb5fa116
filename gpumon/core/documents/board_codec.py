"""How full a GPU is, as an object of JSON, and back.

A GPU's troubles as objects of JSON, in the report and in the state alike, and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpumon.core.board.fill import (
    NO_FILL,
    GpuFill,
    Mean,
    is_held_down,
    is_under_filled,
    known_ratio,
)
from gpumon.core.board.troubles import Trouble, TroubleKind
from gpumon.core.clock import nanoseconds, seconds
from gpumon.core.verdict import Severity
from gpumon.core.wording import label_text


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


_MOST_TEXT = 600


def encode_troubles(
    troubles: Sequence[Trouble], origin: datetime | None, origin_ns: int
) -> list[dict[str, Any]]:
    """The troubles, the worst first.

    Args:
        troubles: Of one GPU.
        origin: The wall clock's time at ``origin_ns``; ``None``: it is not known.
        origin_ns: An instant on the clock of their times.
    """
    return [_encode(one, origin, origin_ns) for one in troubles]


def _encode(trouble: Trouble, origin: datetime | None, origin_ns: int) -> dict[str, Any]:
    last_at = None
    if origin is not None and trouble.last_ns is not None:
        last_at = origin + timedelta(seconds=seconds(trouble.last_ns - origin_ns))
    return {
        "kind": trouble.kind.value,
        "severity": trouble.severity.value,
        "code": trouble.code,
        "reason": trouble.reason,
        "count": trouble.times,
        "seconds": None if trouble.duration_ns is None else seconds(trouble.duration_ns),
        "last_seen_at": None if last_at is None else last_at.isoformat(),
        "text": label_text(trouble.text, _MOST_TEXT),
        "advice": label_text(trouble.advice, _MOST_TEXT),
    }


def decode_troubles(
    documents: Sequence[Mapping[str, Any]], origin: datetime | None
) -> tuple[Trouble, ...]:
    """The troubles, with times that count from ``origin``.

    Raises:
        KeyError: A field is missing.
        TypeError: A value is of another kind.
        ValueError: It is out of range.
    """
    return tuple(_decode(one, origin) for one in documents)


def _decode(document: Mapping[str, Any], origin: datetime | None) -> Trouble:
    duration_s, last_at = document["seconds"], document["last_seen_at"]
    last_ns = None
    if origin is not None and last_at is not None:
        last_ns = (datetime.fromisoformat(last_at) - origin) // timedelta(microseconds=1) * 1_000
    return Trouble(
        kind=TroubleKind(document["kind"]),
        severity=Severity(document["severity"]),
        text=label_text(str(document["text"]), _MOST_TEXT),
        advice=label_text(str(document["advice"]), _MOST_TEXT),
        code=_whole(document["code"]),
        reason=None if document["reason"] is None else label_text(str(document["reason"])),
        times=_whole(document["count"]),
        duration_ns=None if duration_s is None else nanoseconds(float(duration_s)),
        last_ns=last_ns,
    )


def _whole(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no count")
    return value

"""What is said of a GPU's board as JSON, in the report and in the state alike, and back.

How full it is while it is busy, and its troubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpumon.core.clock import seconds
from gpumon.core.codecs.field_codec import (
    TOLD,
    FieldCodec,
    MalformedError,
    in_order,
    items,
    mapping,
    number,
    shown,
    time_ns,
)
from gpumon.core.codecs.moments import Moments
from gpumon.core.device.fill import (
    NO_FILL,
    Evidence,
    GpuFill,
    Mean,
    is_held_down,
    is_under_filled,
    known_ratio,
)
from gpumon.core.device.held import HeldGpu
from gpumon.core.device.in_job import InJob, Tenant
from gpumon.core.device.troubles import Trouble

_TROUBLE: Final = FieldCodec(
    Trouble,
    TOLD._replace(text=shown(600)),
    "kind severity text advice code reason count=times seconds=duration_ns line?",
)
_IN_JOB: Final = FieldCodec(
    InJob,
    TOLD,
    "jobs begun listed_seconds? tenants?",
    {Tenant: "pid uid present_seconds computing_known_seconds computing_seconds"},
)
_HELD: Final = FieldCodec(HeldGpu, TOLD, "pid user command memory_bytes processes=process_count?")
_TROUBLE_ORDER: Final = (
    "kind", "severity", "code", "reason", "count", "seconds", "last_seen_at", "line", "began_at",
    "ended_at",
)  # fmt: skip


def encode_fill(fill: GpuFill | None) -> dict[str, Any]:
    """Ratios over busy time, 0 to 1; ``None`` where unknown.

    ``observed_seconds`` is the busy time that the evidence covers,
    ``power_seconds`` that of power at full clock, and ``drawn_seconds`` that of
    power at any; ``under_filled`` and ``held_down`` follow
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
        "drawn_watts": fill.drawn_watts,
        "drawn_seconds": seconds(fill.drawn_ns),
        "sm_clock_ratio": fill.sm_clock.ratio,
        "held_ratio": fill.held_ratio,
        "held_known_seconds": seconds(fill.held_known_ns),
        "held_seconds_by_reason": {name: seconds(ns) for name, ns in fill.held_by_ns.items()},
        "under_filled": is_under_filled(fill),
        "held_down": is_held_down(fill),
    }


def encode_held(held: HeldGpu | None, moments: Moments) -> dict[str, Any] | None:
    """Who holds a GPU without using it, and since when; ``None``: nobody."""
    if held is None:
        return None
    return {**_HELD.encode(held), "since": moments.encode(held.since_ns)}


def decode_held(document: object, moments: Moments) -> HeldGpu | None:
    """What ``encode_held`` gave; ``None`` also where since when is not known.

    Raises:
        MalformedError: It is something else.
    """
    if document is None:
        return None
    fields = mapping(document)
    since_ns = moments.decode(fields.get("since"))
    if since_ns is None:
        return None
    held = _HELD.decode(fields, since_ns=since_ns)
    if held.pid < 1 or held.process_count < 1:
        raise MalformedError("held by no process")
    return held


def brief_fill(fill: GpuFill) -> dict[str, Any]:
    """As ``encode_fill``, with no more than who looks once a second needs."""
    told = encode_fill(fill)
    told["held_mostly_by"] = max(fill.held_by_ns, key=fill.held_by_ns.__getitem__, default=None)
    return {name: told[name] for name in _BRIEFLY}


_BRIEFLY: Final = (
    "evidence",
    "sm_active_ratio",
    "power_watts",
    "power_limit_watts",
    "held_ratio",
    "held_mostly_by",
    "under_filled",
    "held_down",
)


def decode_fill(document: object) -> GpuFill | None:
    """The sums behind the ratios, as far as the document tells them.

    Every share of activity is taken to cover all of ``observed_seconds``.

    Raises:
        KeyError: What it rests on is missing.
        ValueError: A value is no finite number; or OverflowError, beyond all bounds.
    """
    if not document:
        return None
    told = mapping(document)
    power_ns = _time_ns(told.get("power_seconds"))
    drawn_ns = _time_ns(told.get("drawn_seconds"))
    held_known_ns = _time_ns(told.get("held_known_seconds"))
    activity_ns = _time_ns(told.get("observed_seconds")) if told["evidence"] == Evidence.GPM else 0

    def mean(name: str, known_ns: int) -> Mean:
        ratio = known_ratio(_number(told.get(name)))
        return Mean() if ratio is None or not known_ns else Mean(known_ns, round(ratio * known_ns))

    def milliwatts(name: str) -> int:
        return round(1000 * (_number(told.get(name)) or 0.0))

    fill = GpuFill(
        sm_active=mean("sm_active_ratio", activity_ns),
        sm_occupancy=mean("sm_occupancy_ratio", activity_ns),
        tensor_active=mean("tensor_active_ratio", activity_ns),
        memory_bandwidth=mean("memory_bandwidth_ratio", activity_ns),
        power_ns=power_ns,
        power_mw_ns=milliwatts("power_watts") * power_ns,
        power_limit_mw_ns=milliwatts("power_limit_watts") * power_ns,
        drawn_ns=drawn_ns,
        drawn_mw_ns=milliwatts("drawn_watts") * drawn_ns,
        # What covers the clock's mean is not told: any time gives the same mean.
        sm_clock=mean("sm_clock_ratio", max(activity_ns, drawn_ns, power_ns, held_known_ns)),
        held_known_ns=held_known_ns,
        held_ns=round((_number(told.get("held_ratio")) or 0.0) * held_known_ns),
        held_by_ns={
            name: _time_ns(value)
            for name, value in mapping(told.get("held_seconds_by_reason") or {}).items()
        },
    )
    return None if fill._replace(held_by_ns=NO_FILL.held_by_ns) == NO_FILL else fill


def _number(value: object) -> float | None:
    return None if value is None else number(value)


def _time_ns(value: object) -> int:
    return 0 if value is None else time_ns(value)


def encode_in_job(in_job: InJob | None) -> dict[str, Any] | None:
    """What a board told while its GPU worked for its present job, or its last one."""
    return None if in_job is None else {**_IN_JOB.encode(in_job), "fill": encode_fill(in_job.fill)}


def decode_in_job(document: object) -> InJob | None:
    """The sums that the document tells; ``None`` where it tells none.

    Raises:
        KeyError: What they rest on is missing.
        ValueError: A value is of another kind, or out of range.
    """
    if document is None:
        return None
    told = mapping(document)
    return _IN_JOB.decode(told, fill=decode_fill(told.get("fill")))


def encode_troubles(troubles: Sequence[Trouble], moments: Moments) -> list[dict[str, Any]]:
    """The troubles, the worst first."""
    documents = []
    for trouble in troubles:
        told = _TROUBLE.encode(trouble)
        told["last_seen_at"] = moments.encode(trouble.last_ns)
        told["began_at"] = moments.encode(trouble.began_ns)
        told["ended_at"] = moments.encode(trouble.ended_ns)
        documents.append(in_order(told, _TROUBLE_ORDER))
    return documents


def decode_troubles(documents: object, moments: Moments) -> tuple[Trouble, ...]:
    """The troubles.

    Raises:
        KeyError: A field is missing.
        ValueError: A value is of another kind, or out of range.
    """
    return tuple(
        _TROUBLE.decode(
            one,
            last_ns=moments.decode(one["last_seen_at"]),
            began_ns=moments.decode(one.get("began_at")),
            ended_ns=moments.decode(one.get("ended_at")),
        )
        for one in map(mapping, items(documents))
    )

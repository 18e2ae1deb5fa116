"""The result of ``gpumon why`` as ``gpumon.why/1``: times in seconds, shares 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpumon.core.clock import seconds
from gpumon.core.codecs.stack_codec import encode_frame
from gpumon.core.report.report import Advice
from gpumon.core.sample import Device
from gpumon.core.stacks.evidence import CauseShare, PlaceCount, StackFinding
from gpumon.core.stacks.frame_text import whole_path
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.stacks.workers import WorkerSummary
from gpumon.core.waits.reasons import WaitReason
from gpumon.core.wording import label_text

WHY_SCHEMA: Final = "gpumon.why/1"
_MOST_PLACES: Final = 20


def encode_device(device: Device | None) -> dict[str, Any] | None:
    """Which GPU it is."""
    if device is None:
        return None
    return {"gpu": device.label, "uuid": device.uuid, "name": device.name}


def encode_finding(finding: StackFinding) -> dict[str, Any]:
    """What the stack samples show."""
    function = finding.function
    return {
        "samples": {
            "idle": finding.idle_samples,
            "busy": finding.busy_samples,
            "mixed": finding.mixed_samples,
            "unobserved": finding.unobserved_samples,
            "failed": finding.failed_samples,
            "at_random": finding.random_samples,
        },
        "is_enough": finding.is_enough,
        "causes": _shares(finding.causes),
        "places": _places(finding.places),
        "function": None
        if function is None
        else {
            **_frame(function.frame),
            "called_from": _optional(function.called_from),
            "idle_samples": function.idle_samples,
            "busy_samples": function.busy_samples,
            "is_compared": function.is_compared,
        },
        "inside": _optional(finding.inside),
        "workers": _workers(finding.workers),
        "causes_at_random": _shares(finding.at_random),
        "places_at_random": _places(finding.random_places),
    }


def encode_advice(advice: Advice | None) -> dict[str, Any] | None:
    """What to change."""
    if advice is None:
        return None
    return {
        "cause": advice.cause,
        "lost_seconds": advice.lost_seconds,
        "speedup_upper_bound": advice.speedup_upper_bound,
        "may_be_more": advice.may_be_more,
        "reason": advice.reason,
        "evidence": advice.evidence,
        "text": advice.text,
    }


def encode_reasons(reasons: Sequence[WaitReason]) -> list[dict[str, Any]]:
    """What the machine showed of the process while the GPU was idle."""
    return [
        {
            "reason": one.reason.value,
            "seconds": seconds(one.waited_ns),
            "figures": None if one.figures is None else one.figures._asdict(),
        }
        for one in reasons
    ]


def _shares(shares: Sequence[CauseShare]) -> list[dict[str, Any]]:
    return [
        {
            "cause": share.cause.value,
            "samples": share.samples,
            "ratio": share.ratio,
            "ratio_low": share.low,
            "ratio_high": share.high,
        }
        for share in shares
    ]


def _places(places: Sequence[PlaceCount]) -> list[dict[str, Any]]:
    return [
        {
            "cause": place.cause.value,
            "what": label_text(place.what),
            "frame": _optional(place.frame),
            "caller": _optional(place.caller),
            "samples": place.samples,
        }
        for place in places[:_MOST_PLACES]
    ]


def _workers(workers: WorkerSummary | None) -> dict[str, Any] | None:
    if workers is None:
        return None
    return {
        "count": workers.number,
        "at_work": workers.at_work,
        "call": _optional(workers.call),
        "user_call": _optional(workers.user_call),
    }


def _optional(frame: StackFrame | None) -> dict[str, Any] | None:
    return None if frame is None else _frame(frame)


def _frame(frame: StackFrame) -> dict[str, Any]:
    return {**encode_frame(frame), "path": whole_path(frame)}

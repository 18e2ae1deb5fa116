"""When kernels ran, from the trace of torch's profiler, on the monotonic clock."""

from __future__ import annotations

import json
from typing import Any, Final

MARK: Final = "gpumon-mark-"
"""A region of that name and of CLOCK_MONOTONIC, in nanoseconds, when it was begun."""

_ON_THE_DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_TOUCH_NS: Final = 50_000
"""Kernels with less than that between them are one span: the board counts no such pause."""


def kernel_spans(trace: str) -> list[tuple[int, int]]:
    """Spans in which the device worked, merged, in CLOCK_MONOTONIC nanoseconds.

    Args:
        trace: The Chrome trace that ``export_chrome_trace`` wrote; its stamps
            are microseconds of a clock of the profiler's own.

    Raises:
        ValueError: It has no mark, so its clock cannot be tied to ours.
    """
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    offset_ns = _offset_ns(events)
    whole: list[tuple[int, int]] = []
    for at, took in sorted((one["ts"], one["dur"]) for one in events if _is_of_the_device(one)):
        start_ns = round(at * 1000) - offset_ns
        end_ns = round((at + took) * 1000) - offset_ns
        if whole and start_ns <= whole[-1][1] + _TOUCH_NS:
            start_ns, end_ns = whole[-1][0], max(whole.pop()[1], end_ns)
        whole.append((start_ns, end_ns))
    return whole


def _is_of_the_device(event: dict[str, Any]) -> bool:
    return event.get("cat") in _ON_THE_DEVICE


def _offset_ns(events: list[dict[str, Any]]) -> int:
    """The profiler's clock minus the monotonic one.

    A mark is stamped by the profiler a moment after it read our clock, so the
    least of the distances is nearest to the truth.
    """
    distances: list[int] = [
        round(event["ts"] * 1000) - int(event["name"].removeprefix(MARK))
        for event in events
        if str(event.get("name", "")).startswith(MARK) and event.get("cat") == "user_annotation"
    ]
    if not distances:
        raise ValueError("the profiler's trace has none of the marks that were set")
    return min(distances)

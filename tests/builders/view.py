"""Views of a tick, as the daemon would send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.core.verdict import Severity
from gpumon.core.view.status import GpuStatus, Need, Tone
from gpumon.core.view.view import (
    AdviceView,
    GpuView,
    Headline,
    HolderView,
    MonitorView,
    ProcessView,
    RecentCells,
    RunView,
    TroubleView,
)

HEALTHY = GpuStatus("healthy", "healthy", "●", Tone.GOOD, Need.WELL)
STARVED = GpuStatus("starved", "starved", "▲", Tone.BAD, Need.LOSING)
LOST = GpuStatus("lost", "lost", "✖", Tone.BAD, Need.BROKEN)
HELD = GpuStatus("held", "held idle", "▣", Tone.WARN, Need.NOTED)
PARTITIONED = GpuStatus("partitioned", "MIG on", "◇", Tone.QUIET, Need.QUIET)
UNUSED = GpuStatus("not_in_use", "not in use", "○", Tone.QUIET, Need.QUIET)
GIB = 1 << 30
DISK = "Keep the data set in memory, or copy it to a local SSD."


def cells(**parts: float) -> RecentCells:
    """Sixty cells of ten seconds, each with these seconds of each part."""
    return RecentCells(1_000.0, 10.0, {part: (length,) * 60 for part, length in parts.items()})


def gpu_view(label: str = "0", status: GpuStatus = HEALTHY, **fields: Any) -> GpuView:
    """A healthy H100, but for the given fields."""
    usual: dict[str, Any] = {
        "label": label,
        "uuid": f"GPU-{label}",
        "number": int(label.partition(":")[0]),
        "parent_uuid": None,
        "name": "NVIDIA H100 80GB HBM3",
        "status": status,
        "since": "2026-11-30T14:03:00+00:00",
        "since_text": "since 14:03 UTC",
        "line": "",
        "cause": None,
        "cause_text": "",
        "reason": None,
        "reason_text": "",
        "lost_ratio": 0.012,
        "lost_by_cause": {"host_to_device": 0.012},
        "utilization_ratio": 0.98,
        "memory_used_bytes": 61 * GIB,
        "memory_capacity_bytes": 80 * GIB,
        "power_watts": 640.0,
        "power_limit_watts": 700.0,
        "temperature_celsius": 61.0,
        "sm_clock_hertz": 1.98e9,
        "advice": (),
        "first_advice": "",
        "troubles": (),
        "seen_text": "",
        "seen_files": (),
        "hint": "",
        "runs": ("train",),
        "held_by": None,
        "processes": (ProcessView(4711, "alice", "python", 60 * GIB, 0.97),),
        "user": "alice",
        "observed_ns": 600 * 10**9,
        "busy_ns": 590 * 10**9,
        "pending_ns": 0,
        "in_use_ns": 600 * 10**9,
        "idle_ns": {"host_to_device": 10 * 10**9},
        "input_wait_by_reason_ns": {},
        "cells": cells(busy=9.9, host_to_device=0.1),
    }
    return GpuView(**(usual | fields))


def starved(label: str = "3") -> GpuView:
    """One that waits for a cold disk; its advice is the first of the view."""
    return gpu_view(
        label,
        STARVED,
        line=f"GPU {label} spends 52 % of its time in use waiting for input.",
        cause="input_wait",
        cause_text="waiting for input",
        reason="disk_bound",
        reason_text="the disk",
        lost_ratio=0.55,
        lost_by_cause={"input_wait": 0.52, "host_to_device": 0.03},
        utilization_ratio=0.41,
        power_watts=310.0,
        advice=(0,),
        first_advice=DISK,
        cells=cells(busy=4.5, input_wait=5.2, host_to_device=0.3),
    )


def lost(label: str = "9") -> GpuView:
    """One that fell off the bus."""
    trouble = TroubleView(
        "lost", Severity.HIGH, f"GPU {label} has been lost (XID 79)", "reset the machine"
    )
    gone: dict[str, Any] = dict.fromkeys(
        (
            "lost_ratio", "utilization_ratio", "memory_used_bytes", "power_watts",
            "temperature_celsius", "sm_clock_hertz", "processes", "user",
        )
    )  # fmt: skip
    return gpu_view(
        label,
        LOST,
        line=f"{trouble.text}.",
        troubles=(trouble,),
        first_advice="Reset the machine.",
        lost_by_cause={},
        runs=(),
        **gone,
    )


def held(label: str, user: str | None = "bob", command: str | None = "ipykernel") -> GpuView:
    """One that a notebook holds."""
    return gpu_view(
        label,
        HELD,
        line=f"Process 815 ({command} of {user}) holds 40.0 GiB of GPU {label} since 09:12 UTC.",
        lost_ratio=None,
        lost_by_cause={},
        utilization_ratio=0.0,
        memory_used_bytes=40 * GIB,
        power_watts=71.0,
        since_text="since 09:12 UTC",
        first_advice="Ask bob to end the notebook.",
        runs=(),
        held_by=HolderView(815, user, command, 40 * GIB, "2026-11-30T09:12:00+00:00"),
        processes=(ProcessView(815, user, command, 40 * GIB, 0.0),),
        user=user,
        cells=cells(not_in_use=10.0),
    )


def run_view(name: str = "train", *gpus: str) -> RunView:
    """A run that trains."""
    return RunView(
        run=name,
        job=name,
        rank=0,
        pid=4711,
        framework="torch",
        alive=True,
        phase="input_wait",
        phase_text="waiting for input",
        steps=1_234,
        epoch=2,
        gpus=gpus or ("3",),
        wall_seconds=600.0,
        step_seconds=0.21,
        held_up_text="Waiting for input, because of the disk.",
    )


def view(*gpus: GpuView, **fields: Any) -> MonitorView:
    """The view of these GPUs, in their order."""
    usual: Mapping[str, Any] = {
        "monotonic_seconds": 1_600.0,
        "wall_time_s": 1_796_048_581.0,
        "started_at": "2026-11-30T14:03:00+00:00",
        "period_seconds": 1.0,
        "source": "nvml",
        "simulated": False,
        "replayed": False,
        "boot_id": "9ce63229-57a7-4f64-982e-f5bccadf2959",
        "headline": Headline(
            Tone.BAD,
            "GPU 3: starved",
            "GPU 9 lost since 14:03 UTC · GPU 3 starved since 14:03 UTC · GPUs 12 and 13 held idle "
            "since 09:12 UTC · 12 healthy",
            "Starved since 14:03 UTC (high loss): GPU 3 spends 52 % of its time in use waiting for "
            "input.",
            "It was idle for 55 of 100 s in use, 52 s of it waiting for input, as its tags prove. "
            "The bottleneck is the disk: 490 MB read per second, busy 92 % of the time.",
            f"{DISK} At most 2.08 times as fast.",
            0,
        ),
        "notes": (),
        "advice": (
            AdviceView(
                "input_wait", "waiting for input", ("3",), 52.0, 2.08, False,
                "GPU 3: waiting for input · 52 s lost · at most 2.08 times as fast", DISK,
                "Tags: 52 of 100 s.", "disk_bound",
            ),
        ),
        "gpus": gpus,
        "runs": (run_view(),),
    }  # fmt: skip
    return MonitorView(**{**usual, **fields})


def sixteen() -> MonitorView:
    """One starved by a disk, one lost, two held idle, and twelve healthy ones."""
    calls = [lost("9"), starved("3"), held("12"), held("13")]
    taken = {gpu.label for gpu in calls}
    return view(*calls, *(gpu_view(f"{at}") for at in range(16) if f"{at}" not in taken))

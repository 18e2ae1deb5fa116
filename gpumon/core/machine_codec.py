"""What a log tells beside its GPUs' own time, as parts of the ``gpumon.report/1`` document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.core.held_memory import HeldMemory
from gpumon.core.log_findings import LogFinding
from gpumon.core.machine import MachineTime
from gpumon.core.run_report_codec import read_ns
from gpumon.core.sampling import Sampling
from gpumon.core.together import Together
from gpumon.core.units import seconds


def encode_machine(machine: MachineTime, joined: Together | None) -> dict[str, Any]:
    """GPU-time over all GPUs, and what they did at the same time (``None``: nobody looked)."""
    return {
        "gpus": machine.gpus,
        "observed_seconds": seconds(machine.observed_ns),
        "busy_seconds": seconds(machine.busy_ns),
        "lost_seconds": seconds(machine.lost_ns),
        "not_in_use_seconds": seconds(machine.out_of_use_ns),
        "pending_seconds": seconds(machine.pending_ns),
        "busy_ratio": machine.share(machine.busy_ns),
        "lost_ratio": machine.share(machine.lost_ns),
        "not_in_use_ratio": machine.share(machine.out_of_use_ns),
        "all_paused_seconds": None if joined is None else seconds(joined.all_paused_ns),
        "together": None if joined is None else _encode_together(joined),
    }


def decode_together(machine: object, gpus: Sequence[Mapping[str, Any]]) -> Together | None:
    """What GPUs did at the same time; ``None`` where the document does not say.

    Args:
        machine: The document's ``machine``; older ones have none.
        gpus: Its GPUs.
    """
    if not isinstance(machine, Mapping) or machine.get("together") is None:
        return None
    joined = machine["together"]
    return Together(
        in_use_ns=read_ns(joined["in_use_seconds"]),
        all_paused_ns=read_ns(machine["all_paused_seconds"]),
        all_pauses=int(joined["all_pauses"]),
        in_use_gpu_ns=read_ns(joined["in_use_gpu_seconds"]),
        paused_gpu_ns=read_ns(joined["paused_gpu_seconds"]),
        by_chance_ns=read_ns(joined["by_chance_seconds"]),
        in_use=tuple(
            int(position) for position in joined["in_use"] if position in range(len(gpus))
        ),
        idle_beside_peer_ns=tuple(decode_optional_ns(gpu) or 0 for gpu in gpus),
    )


def decode_optional_ns(gpu: Mapping[str, Any]) -> int | None:
    """``idle_beside_peer_seconds`` of a GPU; ``None`` where nobody looked."""
    value = gpu.get("idle_beside_peer_seconds")
    return None if value is None else read_ns(value)


def encode_held(held: HeldMemory | None) -> dict[str, Any] | None:
    """Memory held without work; ``None`` where the log does not say what is in use."""
    if held is None:
        return None
    return {
        "idle_seconds": seconds(held.idle_ns),
        "longest_seconds": seconds(held.longest_ns),
        "peak_bytes": held.peak_bytes,
    }


def decode_held(held: Mapping[str, Any] | None) -> HeldMemory | None:
    """The same, back."""
    if held is None:
        return None
    return HeldMemory(
        read_ns(held["idle_seconds"]), read_ns(held["longest_seconds"]), int(held["peak_bytes"])
    )


def encode_sampling(sampling: Sampling | None) -> dict[str, Any] | None:
    """What the period of a log lets anybody see; ``None`` in a live report."""
    if sampling is None:
        return None
    return {
        "period_seconds": seconds(sampling.period_ns),
        "shortest_visible_pause_seconds": seconds(sampling.shortest_visible_pause_ns),
        "is_coarse": sampling.is_coarse,
    }


def decode_sampling(sampling: Mapping[str, Any] | None) -> Sampling | None:
    """The same, back."""
    if sampling is None:
        return None
    return Sampling(
        period_ns=read_ns(sampling["period_seconds"]),
        shortest_visible_pause_ns=read_ns(sampling["shortest_visible_pause_seconds"]),
        is_coarse=bool(sampling["is_coarse"]),
    )


def encode_finding(finding: LogFinding) -> dict[str, Any]:
    """A finding: the rule's id, the labels of the GPUs it is about, and what is so."""
    return {"rule": finding.rule, "gpus": list(finding.gpus), "text": finding.text}


def _encode_together(joined: Together) -> dict[str, Any]:
    return {
        "in_use_seconds": seconds(joined.in_use_ns),
        "all_pauses": joined.all_pauses,
        "in_use_gpu_seconds": seconds(joined.in_use_gpu_ns),
        "paused_gpu_seconds": seconds(joined.paused_gpu_ns),
        "by_chance_seconds": seconds(joined.by_chance_ns),
        "in_use": list(joined.in_use),
    }

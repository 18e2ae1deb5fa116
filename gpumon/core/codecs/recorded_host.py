"""What the machine showed of trainings that waited, as a JSON object and back."""

from __future__ import annotations

from typing import Any, Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.field_codec import (
    KEPT,
    FieldCodec,
    MalformedError,
    bounded,
    mapping,
    number,
    text,
)
from gpumon.core.host.evidence import (
    MOST_TASKS,
    NOT_LOOKED,
    HostEvidence,
    HostReading,
    ProcessState,
    TaskLook,
)

_MOST_RUNS: Final = 1_024
_LONGEST_LOOK_NS: Final = 60 * NS_PER_S
_EVIDENCE: Final = FieldCodec(
    HostEvidence,
    KEPT,
    "start_ns end_ns waiting_ratio main threads? workers? read_bytes_per_second"
    " major_faults_per_second disk_busy_ratio disk_read_bytes_per_second"
    " received_bytes_per_second memory_stalled_ratio refaults_per_second usable_cores"
    " throttled_ratio",
    {TaskLook: "on_cpu_cores queued_cores switches_per_second state sleeps_in"},
)
_PROCESS: Final = FieldCodec(ProcessState, KEPT, "is_stopped sleeps_in")


def encode_host(host: HostReading) -> dict[str, Any]:
    """The looks of one tick, by the keys of their rings; empty where there were none."""
    if host == NOT_LOOKED:
        return {}
    told: dict[str, Any] = {
        "runs": {key: _EVIDENCE.encode(evidence) for key, evidence in host.of_run.items()},
        "took_s": host.took_seconds,
    }
    if host.processes:
        told["processes"] = {key: _PROCESS.encode(one) for key, one in host.processes.items()}
    return told if host.message is None else {**told, "message": bounded(host.message)}


def decode_host(document: object) -> HostReading:
    """The looks of one tick.

    Raises:
        MalformedError: It is not what ``encode_host`` writes, or out of bounds.
    """
    told = mapping(document)
    if not told:
        return NOT_LOOKED
    runs, message = mapping(told.get("runs", {})), told.get("message")
    if len(runs) > _MOST_RUNS:
        raise MalformedError("looks at too many trainings")
    of_run = {key: _EVIDENCE.decode(evidence) for key, evidence in runs.items()}
    for one in of_run.values():
        if not 0 < one.end_ns - one.start_ns <= _LONGEST_LOOK_NS:
            raise MalformedError("a look of no length, or of a long one")
        if max(len(one.threads), len(one.workers)) > MOST_TASKS:
            raise MalformedError("a look at too many tasks")
    processes = mapping(told.get("processes", {}))
    if len(processes) > _MOST_RUNS:
        raise MalformedError("states of too many processes")
    return HostReading(
        of_run=of_run,
        processes={key: _PROCESS.decode(state) for key, state in processes.items()},
        took_seconds=number(told.get("took_s", 0.0)),
        message=None if message is None else text(message),
    )

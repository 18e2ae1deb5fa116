"""``MonitorState`` as the document of ``state.json`` and, with its boards, of ``/api/v1/state``.

The schema is fixed: fields may be added, never removed, renamed or given
another unit. Readers (the dstat plugin among them) take differences of the
monotonic counters over an interval of their own.
"""

from __future__ import annotations

from typing import Any, Final

from gpumon.core.clock import seconds
from gpumon.core.codecs.board_codec import brief_fill
from gpumon.core.codecs.field_codec import TOLD, FieldCodec, encode_document, shown
from gpumon.core.codecs.moments import Moments
from gpumon.core.codecs.recorded_frames import ACTIVITY, DETAILS
from gpumon.core.diagnosis.pause_texts import likely_text
from gpumon.core.ring_format.runtime_paths import STATE_SCHEMA
from gpumon.core.sample import ActivitySample, GpuDetails, GpuSample, ProcessSample
from gpumon.core.state import CollectorState, GpuState, MonitorState, RunState, origin_of
from gpumon.core.wording import label_text

MOST_PROCESSES: Final = 64
"""As many of a GPU are shown, those with the most memory first."""
_LONG: Final = TOLD._replace(text=shown(512))
_AS_READ: Final = TOLD._replace(in_seconds=False)

_LATEST: Final = FieldCodec(
    GpuSample,
    TOLD,
    "energy_joules utilization_ratio memory_used_bytes power_watts temperature_celsius",
)
_NOTHING_READ: Final = dict.fromkeys(_LATEST.names)
_DETAILS: Final = FieldCodec(GpuDetails, _AS_READ, DETAILS)
_ACTIVITY: Final = FieldCodec(ActivitySample, _AS_READ, ACTIVITY)
_COLLECTOR: Final = FieldCodec(
    CollectorState, _LONG, "name success duration_seconds errors_total message"
)
_RUN: Final = FieldCodec(
    RunState,
    TOLD,
    "run job rank pid framework alive phase steps samples epoch gpus=gpu_uuids shares wall_seconds"
    " phase_seconds",
)
_PROCESS: Final = FieldCodec(ProcessSample, TOLD, "pid memory_used_bytes sm_ratio")
_WHOSE: Final = FieldCodec(ProcessSample, TOLD._replace(tells_none=False), "name user")


def state_document(state: MonitorState, *, pid: int, address: str | None) -> dict[str, Any]:
    """What other programs of this machine read once a second, as JSON has it.

    Args:
        state: What one tick brought.
        pid: Process id of the daemon.
        address: ``host:port`` of its web server; ``None`` where it has none.

    Returns:
        A document that ``encode_document`` writes. Values of a GPU that no
        longer answers are ``None``; its counters stay.
    """
    return {
        **_before_runs(state, pid=pid, address=address),
        "runs": [_RUN.encode(run) for run in state.runs],
        **_after_runs(state),
    }


class StateEncoder:
    """Writes states one after the other, and each run that has ended only once.

    Hundreds of them may be listed, for minutes: to write them anew in each tick would be most of
    its time, and the largest thing that it makes.
    """

    def __init__(self) -> None:
        self._runs: tuple[RunState, ...] = ()  # of the newest state
        self._ended: dict[int, bytes] = {}  # of those of them that have ended, by identity

    def encode(self, state: MonitorState, *, pid: int, address: str | None) -> bytes:
        """What ``encode_document`` makes of the ``state_document`` of the next state."""
        before = encode_document(_before_runs(state, pid=pid, address=address))
        after = encode_document(_after_runs(state))
        parts = [before.rstrip()[:-1], b',"runs":[']
        for text in self._texts(state.runs):
            parts += (text, b",")
        if state.runs:
            parts.pop()
        return b"".join((*parts, b"],", after[1:]))

    def _texts(self, runs: tuple[RunState, ...]) -> list[bytes]:
        ended: dict[int, bytes] = {}
        texts = []
        for run in runs:
            text = self._ended.get(id(run))
            if text is None:
                text = encode_document(_RUN.encode(run)).rstrip()
            if not run.alive:
                ended[id(run)] = text
            texts.append(text)
        # They live for as long as this has them, and so nothing else has their identity.
        self._runs, self._ended = runs, ended
        return texts


def _before_runs(state: MonitorState, *, pid: int, address: str | None) -> dict[str, Any]:
    moments = Moments(*origin_of(state))
    return {
        "schema": STATE_SCHEMA,
        "monotonic_ns": state.taken_at_ns,
        "wall_time_s": state.wall_time_s,
        "boot_id": state.boot_id,
        "period_ns": state.period_ns,
        "pid": pid,
        "source": label_text(state.source),
        "simulated": state.simulated,
        "replayed": state.replayed,
        "address": address,
        "gpus": [_gpu_document(gpu, moments) for gpu in state.gpus],
    }


def _after_runs(state: MonitorState) -> dict[str, Any]:
    return {
        "collectors": [_COLLECTOR.encode(collector) for collector in state.collectors],
        "rings_left_out": [{"uid": uid, "rings": n} for uid, n in state.rings_left_out],
    }


def board_document(gpu: GpuState) -> dict[str, Any]:
    """What a GPU's board tells beside its time, for ``/api/v1/state``.

    Returns:
        How long its run hung; what it waited for a first batch; what its pauses look like
        (``Verdict``, and in words); how full it is; its ``GpuDetails`` and ``ActivitySample`` by
        their fields' names; how many errors there were by XID, as text; and who computes on it.
        Each but the errors is ``None`` where there is none; of a GPU that does not answer any
        more, its errors, its pauses and its fill stay.
    """
    latest = gpu.latest if gpu.present else None
    details, activity = (None, None) if latest is None else (latest.details, latest.activity)
    return {
        "hanging_seconds": seconds(gpu.totals.hanging_ns),
        "first_input_wait_ns": gpu.totals.first_input_wait_ns,
        "input_probability": gpu.verdict.input_probability,
        "likely_causes": gpu.verdict.likely_causes,
        "likely_text": likely_text(gpu.verdict),
        "fill": None if gpu.fill is None else brief_fill(gpu.fill),
        "details": None if details is None else _DETAILS.encode(details),
        "activity": None if activity is None else _ACTIVITY.encode(activity),
        "xid_errors": {str(xid): count for xid, count in gpu.xid_errors},
        "processes": None if latest is None else _process_documents(latest),
    }


def _gpu_document(gpu: GpuState, moments: Moments) -> dict[str, Any]:
    device, totals, now = gpu.device, gpu.totals, gpu.now
    return {
        "index": device.index,
        "uuid": label_text(device.uuid),
        "name": _text_or_none(device.name),
        "present": gpu.present,
        "listed": gpu.listed,
        "observed_ns": totals.observed_ns,
        "busy_ns": totals.busy_ns,
        "starved_ns": totals.starved_ns,
        "suspected_ns": totals.suspected_ns,
        "pending_ns": totals.pending_ns,
        "idle_ns": {cause.value: idle_ns for cause, idle_ns in totals.idle_ns.items()},
        "in_use_ns": totals.in_use_ns,
        "input_wait_by_reason_ns": dict(totals.input_wait_by_reason_ns),
        "within_step_by_reason_ns": dict(totals.within_step_by_reason_ns),
        **(_LATEST.encode(gpu.latest) if gpu.present and gpu.latest else _NOTHING_READ),
        "memory_capacity_bytes": device.memory_capacity_bytes,
        "starved_now": totals.starved_now,
        "last_sample_ns": gpu.last_sample_at_ns,
        "verdict": gpu.verdict.name.value,
        "now": None
        if now is None
        else {
            "verdict": now.name.value,
            "since": moments.encode(now.since_ns),
            "window_seconds": seconds(now.window_ns),
            "suspended": now.is_suspended,
        },
        "error": _text_or_none(gpu.error),
        "label": device.label,
        "mig_enabled": device.mig_enabled,
        "parent_uuid": _text_or_none(device.parent_uuid),
    }


def _text_or_none(raw: str | None) -> str | None:
    return None if raw is None else label_text(raw, max_length=512)


def _process_documents(sample: GpuSample) -> list[dict[str, Any]] | None:
    """Who computes on that GPU now; a name and a user only where they were asked for."""
    if sample.processes is None:
        return None
    by_memory = sorted(sample.processes, key=lambda process: -(process.memory_used_bytes or 0))
    return [
        {**_PROCESS.encode(process), **_WHOSE.encode(process)}
        for process in by_memory[:MOST_PROCESSES]
    ]

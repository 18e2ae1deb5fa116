"""``MonitorState`` as the document of ``state.json`` and, with more of each GPU, ``/api/v1/state``.

The schema is fixed: fields may be added, never removed, renamed or given
another unit. Readers (the dstat plugin among them) take differences of the
monotonic counters over an interval of their own.

The counters of a GPU move when the driver's samples are drained, every few
seconds. ``settled_until_ns`` is the CLOCK_MONOTONIC up to which its time is in
them, ``None`` before the first sample. A state without that field is of an
older daemon, whose ``last_sample_ns`` is the same.
"""

from __future__ import annotations

from typing import Any, Final

from gpumon.core.clock import seconds
from gpumon.core.codecs.field_codec import (
    PUBLIC,
    FieldCodec,
    WallClock,
    encode_document,
    shown,
)
from gpumon.core.codecs.gpu_codec import encode_fill
from gpumon.core.codecs.recorded_frames import ACTIVITY, DETAILS
from gpumon.core.codecs.stack_codec import ANYBODY, Viewer
from gpumon.core.device.sm_utilisation import GpuFill
from gpumon.core.diagnosis.pause_messages import likely_text
from gpumon.core.diagnosis.seen_messages import seen_files, seen_place, seen_share
from gpumon.core.ring_format.runtime_paths import STATE_SCHEMA
from gpumon.core.sample import ActivitySample, GpuDetails, GpuSample, ProcessSample
from gpumon.core.state import CollectorState, GpuState, MonitorState, RunState, origin_of
from gpumon.core.wording import label_text

MAX_PROCESSES: Final = 64
"""Processes shown of one GPU: those with the most memory."""
_IN_NS: Final = PUBLIC._replace(in_seconds=False)

_LATEST: Final = FieldCodec(
    GpuSample,
    PUBLIC,
    "energy_joules utilization_ratio memory_used_bytes power_watts temperature_celsius",
)
_NOTHING_READ: Final = dict.fromkeys(_LATEST.names)
_DETAILS: Final = FieldCodec(GpuDetails, _IN_NS, DETAILS)
_ACTIVITY: Final = FieldCodec(ActivitySample, _IN_NS, ACTIVITY)
_COLLECTOR: Final = FieldCodec(
    CollectorState,
    PUBLIC._replace(text=shown(512)),
    "name success duration_seconds errors_total message",
)
_RUN: Final = FieldCodec(
    RunState,
    PUBLIC,
    "run job rank pid framework alive phase steps samples epoch gpus=gpu_uuids shares wall_seconds"
    " phase_seconds",
)
_PROCESS: Final = FieldCodec(ProcessSample, PUBLIC, "pid memory_used_bytes sm_ratio")
_OWNER: Final = FieldCodec(ProcessSample, PUBLIC._replace(writes_none=False), "name user")


def state_document(state: MonitorState, *, pid: int, address: str | None) -> dict[str, Any]:
    """What other programs of this machine read once a second.

    ``pid`` is the daemon's, ``address`` its web server's ``host:port``. Values of a GPU that no
    longer answers are ``None``; its counters stay.
    """
    clock = WallClock(*origin_of(state))
    return {
        **_before_gpus(state, pid=pid, address=address),
        "gpus": [_gpu_document(gpu, clock) for gpu in state.gpus],
        "runs": [_RUN.encode(run) for run in state.runs],
        **_after_runs(state),
    }


class StateEncoder:
    """Encodes successive states, and the state of each GPU and run only once.

    Hundreds of runs may be listed that have ended, or do nothing: encoding them in each tick would
    be most of its time, and its largest allocation. GPUs change where the driver was drained.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, tuple[object, bytes]] = {}  # by UUID: what is shown, and its text
        self._encoded_gpus: tuple[tuple[GpuState, ...], bytes] = ((), b"")
        self._runs: tuple[RunState, ...] = ()
        self._encoded: dict[int, bytes] = {}  # by identity: `_runs` keeps them alive

    def encode(self, state: MonitorState, *, pid: int, address: str | None) -> bytes:
        """The bytes of the ``state_document`` of the next state."""
        before = encode_document(_before_gpus(state, pid=pid, address=address)).rstrip()[:-1]
        after = encode_document(_after_runs(state))[1:]
        if state.gpus is not self._encoded_gpus[0]:
            self._encoded_gpus = state.gpus, b",".join(self._encode_gpus(state))
        gpus, runs = self._encoded_gpus[1], b",".join(self._encode_runs(state.runs))
        return b"".join((before, b',"gpus":[', gpus, b'],"runs":[', runs, b"],", after))

    def _encode_gpus(self, state: MonitorState) -> list[bytes]:
        clock, known, self._gpus = WallClock(*origin_of(state)), self._gpus, {}
        for gpu in state.gpus:
            shown = _all_shown(gpu)
            before, text = known.get(gpu.device.uuid, (None, b""))
            if shown != before:
                text = encode_document(_gpu_document(gpu, clock)).rstrip()
            self._gpus[gpu.device.uuid] = shown, text
        return [text for _, text in self._gpus.values()]

    def _encode_runs(self, runs: tuple[RunState, ...]) -> list[bytes]:
        known = self._encoded
        texts = [known.get(id(run)) or encode_document(_RUN.encode(run)).rstrip() for run in runs]
        self._runs = runs
        self._encoded = {id(run): text for run, text in zip(runs, texts, strict=True)}
        return texts


def _before_gpus(state: MonitorState, *, pid: int, address: str | None) -> dict[str, Any]:
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
    }


def _after_runs(state: MonitorState) -> dict[str, Any]:
    return {
        "collectors": [_COLLECTOR.encode(collector) for collector in state.collectors],
        "rings_left_out": [{"uid": uid, "rings": n} for uid, n in state.rings_left_out],
    }


def _all_shown(gpu: GpuState) -> tuple[object, ...]:
    """All that ``_gpu_document`` shows: the same objects as long as nothing changes."""
    return (
        *(gpu.device, gpu.totals, gpu.verdict, gpu.now, gpu.error),
        *(gpu.listed, gpu.present, gpu.last_sample_at_ns, _latest(gpu)),
    )


def _latest(gpu: GpuState) -> dict[str, Any]:
    return _LATEST.encode(gpu.latest) if gpu.present and gpu.latest else _NOTHING_READ


def _gpu_document(gpu: GpuState, clock: WallClock) -> dict[str, Any]:
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
        "seen_ns": {cause.value: seen_ns for cause, seen_ns in totals.seen_ns.items()},
        "in_use_ns": totals.in_use_ns,
        "input_wait_by_reason_ns": dict(totals.input_wait_by_reason_ns),
        "within_step_by_reason_ns": dict(totals.within_step_by_reason_ns),
        **_latest(gpu),
        "memory_capacity_bytes": device.memory_capacity_bytes,
        "starved_now": totals.starved_now,
        "last_sample_ns": gpu.last_sample_at_ns,
        "settled_until_ns": gpu.last_sample_at_ns,
        "verdict": gpu.verdict.name.value,
        "now": None
        if now is None
        else {
            "verdict": now.name.value,
            "since": clock.encode(now.since_ns),
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


def board_document(gpu: GpuState, viewer: Viewer = ANYBODY) -> dict[str, Any]:
    """What ``/api/v1/state`` adds to a GPU, as the viewer may see it.

    Unknown values are ``None``. Of a GPU that no longer answers,
    its errors, its pauses and its fill stay.
    """
    latest = gpu.latest if gpu.present else None
    details, activity = (None, None) if latest is None else (latest.details, latest.activity)
    return {
        "hanging_seconds": seconds(gpu.totals.hanging_ns),
        "first_input_wait_ns": gpu.totals.first_input_wait_ns,
        "input_probability": gpu.verdict.input_probability,
        "likely_causes": gpu.verdict.likely_causes,
        "likely_text": likely_text(gpu.verdict, was_seen=bool(gpu.totals.sampled_pauses)),
        "seen_text": " ".join(filter(None, (seen_share(gpu.totals), seen_place(gpu.stacks)))),
        "seen_files": seen_files(gpu.stacks) if viewer.may_see_paths(gpu.stacks) else (),
        "fill": None if gpu.fill is None else _brief_fill(gpu.fill),
        "details": None if details is None else _DETAILS.encode(details),
        "activity": None if activity is None else _ACTIVITY.encode(activity),
        "xid_errors": {str(xid): count for xid, count in gpu.xid_errors},
        "processes": None if latest is None else _process_documents(latest),
    }


def _brief_fill(fill: GpuFill) -> dict[str, Any]:
    document = encode_fill(fill)
    document["held_mostly_by"] = max(
        fill.throttled_by_ns, key=fill.throttled_by_ns.__getitem__, default=None
    )
    names = (
        "evidence sm_active_ratio power_watts power_limit_watts held_ratio held_mostly_by"
        " under_filled held_down"
    )
    return {name: document[name] for name in names.split()}


def _process_documents(sample: GpuSample) -> list[dict[str, Any]] | None:
    """The processes on a GPU, with name and user only if these are enabled."""
    if sample.processes is None:
        return None
    by_memory = sorted(sample.processes, key=lambda process: -(process.memory_used_bytes or 0))
    return [
        {**_PROCESS.encode(process), **_OWNER.encode(process)}
        for process in by_memory[:MAX_PROCESSES]
    ]

"""``MonitorState`` as the document of ``state.json`` and ``/api/v1/state``.

The schema is fixed: fields may be added, never removed, renamed or given
another unit. Readers (the dstat plugin among them) take differences of the
monotonic counters over an interval of their own.

What a board says every few seconds, as objects of JSON.

The processes of a GPU as ``/api/v1/state`` shows them; never in files that all can read.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.documents.board_codec import brief_fill
from gpumon.core.phase import CAUSES, PHASES
from gpumon.core.ring.runtime_paths import STATE_SCHEMA
from gpumon.core.sample import ActivitySample, GpuDetails, GpuSample, ProcessSample
from gpumon.core.state import CollectorState, GpuState, MonitorState, RunState
from gpumon.core.wording import label_text


def board_document(gpu: GpuState) -> dict[str, Any]:
    """A GPU's ``details``, its ``activity`` and its ``xid_errors``.

    Returns:
        The fields of ``GpuDetails`` and ``ActivitySample`` by their names,
        each object ``None`` where there is none and where the GPU does not
        answer any more; how many errors there were by XID, as text.
    """
    latest = gpu.latest if gpu.present else None
    return {
        "details": None if latest is None else _fields_of(latest.details),
        "activity": None if latest is None else _fields_of(latest.activity),
        "xid_errors": {str(xid): count for xid, count in gpu.xid_errors},
    }


def _fields_of(told: GpuDetails | ActivitySample | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {name: _plain(value) for name, value in told._asdict().items()}


def _plain(value: object) -> object:
    """JSON has no word for *not a number*: such an answer is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value


# Looking an enumeration's value up costs more than a dictionary does, and this runs in each tick.
_CAUSE_NAMES: Final = {cause: cause.value for cause in CAUSES}
_PHASE_NAMES: Final = {phase: phase.value for phase in PHASES}
_MARK: Final = "\x01"
_MARK_IN_TEXT: Final = '"\\u0001":0'
"""No text from outside has control characters left, so it stands nowhere else."""

_NO_SAMPLE: Final[dict[str, float | int | None]] = {
    "energy_joules": None,
    "utilization_ratio": None,
    "memory_used_bytes": None,
    "power_watts": None,
    "temperature_celsius": None,
}


def state_document(state: MonitorState, *, pid: int, address: str | None) -> dict[str, Any]:
    """The state as plain dictionaries, lists, numbers and text.

    Args:
        state: What one tick brought.
        pid: Process id of the daemon.
        address: ``host:port`` of its web server; ``None`` where it has none.

    Returns:
        A document that ``encode_document`` writes. Values of a GPU that no
        longer answers are ``None``; its counters stay.
    """
    document = _document(state, pid=pid, address=address)
    for written, gpu in zip(document["gpus"], state.gpus, strict=True):
        written |= board_document(gpu)
    return document


class StateTexts:
    """Writes one state after another; what a board says every few seconds is written once."""

    def __init__(self) -> None:
        self._boards: dict[str, tuple[tuple[object, ...], str]] = {}

    def encode(self, state: MonitorState, *, pid: int, address: str | None) -> bytes:
        """What ``encode_document`` makes of ``state_document``, in less time.

        Args:
            state: What one tick brought.
            pid: Process id of the daemon.
            address: ``host:port`` of its web server; ``None`` where it has none.
        """
        document = _document(state, pid=pid, address=address)
        for written in document["gpus"]:
            written[_MARK] = 0
        first, *others = _ENCODE(document).split(_MARK_IN_TEXT)
        boards = map(self._board, state.gpus)
        texts = [
            text for board, other in zip(boards, others, strict=True) for text in (board, other)
        ]
        if len(self._boards) > len(state.gpus):
            self._boards.clear()  # a GPU has left: what is kept of it would be kept for ever
        return "".join((first, *texts, "\n")).encode("ascii")

    def _board(self, gpu: GpuState) -> str:
        latest = gpu.latest if gpu.present else None
        told = (
            (None, None, gpu.xid_errors)
            if latest is None
            else (latest.details, latest.activity, gpu.xid_errors)
        )
        kept = self._boards.get(gpu.device.uuid)
        if kept is not None and told == kept[0]:  # tuples look for identity first
            return kept[1]
        text = _ENCODE(board_document(gpu))[1:-1]
        self._boards[gpu.device.uuid] = told, text
        return text


def _document(state: MonitorState, *, pid: int, address: str | None) -> dict[str, Any]:
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
        "gpus": [_gpu_document(gpu) for gpu in state.gpus],
        "runs": [_run_document(run) for run in state.runs],
        "collectors": [_collector_document(collector) for collector in state.collectors],
        "rings_left_out": [{"uid": uid, "rings": n} for uid, n in state.rings_left_out],
    }


def encode_document(document: object) -> bytes:
    """A document as one line of ASCII JSON, with a line break at its end."""
    return _ENCODE(document).encode("ascii") + b"\n"


# Circular references cannot occur in what ``state_document`` builds; not
# looking for them saves a fifth of the time.
_ENCODE: Final = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


def _gpu_document(gpu: GpuState) -> dict[str, Any]:
    totals = gpu.totals
    return {
        "index": gpu.device.index,
        "uuid": label_text(gpu.device.uuid),
        "name": _text_or_none(gpu.device.name),
        "present": gpu.present,
        "listed": gpu.listed,
        "observed_ns": totals.observed_ns,
        "busy_ns": totals.busy_ns,
        "starved_ns": totals.starved_ns,
        "suspected_ns": totals.suspected_ns,
        "pending_ns": totals.pending_ns,
        "idle_ns": {_CAUSE_NAMES[cause]: idle_ns for cause, idle_ns in totals.idle_ns.items()},
        "in_use_ns": totals.in_use_ns,
        **(_sample_values(gpu.latest) if gpu.present and gpu.latest is not None else _NO_SAMPLE),
        "memory_capacity_bytes": gpu.device.memory_capacity_bytes,
        "starved_now": totals.starved_now,
        "last_sample_ns": gpu.last_sample_at_ns,
        "verdict": gpu.verdict.name.value,
        "error": _text_or_none(gpu.error),
        "label": gpu.device.label,
        "mig_enabled": gpu.device.mig_enabled,
        "parent_uuid": _text_or_none(gpu.device.parent_uuid),
        "fill": None if gpu.fill is None else brief_fill(gpu.fill),
    }


def _sample_values(sample: GpuSample) -> dict[str, float | int | None]:
    return {
        "energy_joules": _finite(sample.energy_joules),
        "utilization_ratio": _finite(sample.utilization_ratio),
        "memory_used_bytes": sample.memory_used_bytes,
        "power_watts": _finite(sample.power_watts),
        "temperature_celsius": _finite(sample.temperature_celsius),
    }


def _run_document(run: RunState) -> dict[str, Any]:
    return {
        "run": label_text(run.run),
        "job": label_text(run.job),
        "rank": run.rank,
        "pid": run.pid,
        "framework": label_text(run.framework),
        "alive": run.alive,
        "phase": None if run.phase is None else _PHASE_NAMES[run.phase],
        "steps": run.steps,
        "samples": run.samples,
        "epoch": run.epoch,
        "gpus": [label_text(uuid) for uuid in run.gpu_uuids],
        "shares": {label_text(uuid): share for uuid, share in run.shares.items()},
        "wall_seconds": run.wall_ns / NS_PER_S,
        "phase_seconds": {
            _PHASE_NAMES[phase]: phase_ns / NS_PER_S for phase, phase_ns in run.phase_ns.items()
        },
    }


def _collector_document(collector: CollectorState) -> dict[str, Any]:
    return {
        "name": label_text(collector.name),
        "success": collector.success,
        "duration_seconds": _finite(collector.duration_seconds),
        "errors_total": collector.errors_total,
        "message": _text_or_none(collector.message),
    }


def _text_or_none(raw: str | None) -> str | None:
    return None if raw is None else label_text(raw, max_length=512)


def _finite(value: float | None) -> float | None:
    """JSON has no word for *not a number*: such an answer is none."""
    return value if value is not None and math.isfinite(value) else None


MOST_PROCESSES: Final = 64
"""As many of a GPU are shown, those with the most memory first."""


def process_documents(gpu: GpuState) -> list[dict[str, Any]] | None:
    """Who computes on that GPU now.

    Returns:
        One dictionary for each process: ``pid``, ``memory_used_bytes`` and
        ``sm_ratio`` (``None``: no answer), and where names were asked for
        ``name`` and ``user``. ``None`` where the list is not to be had.
    """
    if not gpu.present or gpu.latest is None or gpu.latest.processes is None:
        return None
    by_memory = sorted(gpu.latest.processes, key=lambda process: -(process.memory_used_bytes or 0))
    return [_process_document(process) for process in by_memory[:MOST_PROCESSES]]


def _process_document(process: ProcessSample) -> dict[str, Any]:
    document: dict[str, Any] = {
        "pid": process.pid,
        "memory_used_bytes": process.memory_used_bytes,
        "sm_ratio": process.sm_ratio,
    }
    if process.name is not None:
        document["name"] = label_text(process.name)
    if process.user is not None:
        document["user"] = label_text(process.user)
    return document

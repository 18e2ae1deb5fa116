"""One training run of a report as an object of JSON, and back; and how numbers are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpumon.core.job_balance import JobBalance
from gpumon.core.label_text import label_text
from gpumon.core.phase import phase_named
from gpumon.core.report import RunReport
from gpumon.core.units import nanoseconds, seconds


def encode_run(run: RunReport, balance: JobBalance | None) -> dict[str, Any]:
    """A run; ``balance`` is that of its job, where its GPUs could be compared."""
    return {
        "run": label_text(run.run),
        "job": label_text(run.job),
        "rank": run.rank,
        "pid": run.pid,
        "framework": label_text(run.framework),
        "steps": run.steps,
        "samples": run.samples,
        "gpus": [label_text(uuid) for uuid in run.gpu_uuids],
        "wall_seconds": seconds(run.wall_ns),
        "phase_seconds": {phase.value: seconds(ns) for phase, ns in run.phase_ns.items()},
        "loader": {label_text(name): _plain(fact) for name, fact in run.loader.items()},
        "callback_seconds": {label_text(name): seconds(ns) for name, ns in run.callback_ns.items()},
        "step_seconds": _seconds_or_none(run.step_ns),
        "first_input_wait_seconds": _seconds_or_none(run.first_input_wait_ns),
        "shares": _encode_ratios(run.shares),
        "ratio_changes": run.ratio_changes,
        "step_busy_ratios": _encode_ratios(run.step_busy_ratios),
        # Of all GPUs of its job, since the ratios last changed; not read back, for they follow.
        "skew_ratio": None if balance is None else balance.skew_ratio,
        "levelled_ratios": _encode_ratios(balance.levelled_ratios or {}) if balance else {},
        "alive": run.alive,
        "ended_before": run.ended_before,
        "owner_uid": run.owner_uid,
        "refused_gpus": [label_text(uuid) for uuid in run.refused_uuids],
    }


def _seconds_or_none(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else seconds(duration_ns)


def _read_or_none(duration_s: object) -> int | None:
    return None if duration_s is None else read_ns(duration_s)


def _encode_ratios(ratios: Mapping[str, float]) -> dict[str, float]:
    return {label_text(uuid): ratio for uuid, ratio in ratios.items()}


def decode_run(run: Mapping[str, Any]) -> RunReport:
    """The run that an object describes.

    Raises:
        KeyError: A field is missing.
        TypeError: A value is of another kind.
        ValueError: It is out of range.
    """
    return RunReport(
        run=str(run["run"]),
        job=str(run["job"]),
        rank=int(run["rank"]),
        pid=int(run["pid"]),
        framework=str(run["framework"]),
        steps=int(run["steps"]),
        gpu_uuids=tuple(str(uuid) for uuid in run["gpus"]),
        wall_ns=read_ns(run["wall_seconds"]),
        phase_ns={
            phase_named(name): read_ns(value) for name, value in run["phase_seconds"].items()
        },
        loader=dict(run.get("loader", {})),
        callback_ns={
            str(name): read_ns(value) for name, value in run.get("callback_seconds", {}).items()
        },
        step_ns=_read_or_none(run.get("step_seconds")),
        first_input_wait_ns=_read_or_none(run.get("first_input_wait_seconds")),
        shares=_decode_ratios(run.get("shares", {})),
        ratio_changes=int(run.get("ratio_changes", 0)),
        step_busy_ratios=_decode_ratios(run.get("step_busy_ratios", {})),
        alive=None if run.get("alive") is None else bool(run["alive"]),
        ended_before=bool(run.get("ended_before", False)),
        samples=None if run.get("samples") is None else int(run["samples"]),
        owner_uid=None if run.get("owner_uid") is None else int(run["owner_uid"]),
        refused_uuids=tuple(str(uuid) for uuid in run.get("refused_gpus", ())),
    )


def _decode_ratios(ratios: Mapping[str, object]) -> dict[str, float]:
    return {str(uuid): read_ratio(ratio) for uuid, ratio in ratios.items()}


def read_ns(duration_s: object) -> int:
    """Seconds of a document in nanoseconds; ``TypeError`` where it is no number."""
    if isinstance(duration_s, bool) or not isinstance(duration_s, (int, float)):
        raise TypeError(f"{duration_s!r} is not a number of seconds")
    return nanoseconds(float(duration_s))


def read_ratio(raw: object) -> float:
    """A share of a document; ``ValueError`` where it is no finite number."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not math.isfinite(raw):
        raise ValueError(f"{raw!r} is not a ratio")
    return float(raw)


def _plain(fact: object) -> str | int | float | bool | None:
    if isinstance(fact, float):
        return fact if math.isfinite(fact) else None
    return fact if isinstance(fact, (bool, int)) or fact is None else label_text(fact)

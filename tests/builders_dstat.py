"""A daemon's state file as the dstat plugin meets it, and the plugin as its hosts execute it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.state import GpuState, MonitorState
from gpumon.outlets.state_file import StateFile
from tests.builders_state import GIB, S, device, healthy_gpu, monitor_state

NOTHING: Mapping[Any, float] = MappingProxyType({})
REASONS = [reason.value for reason in InputWaitReason]
PLUGIN = Path(__file__).resolve().parents[1] / "dstat_plugins" / "dstat_gpu.py"


def this_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def gpu(
    index: int = 0,
    *,
    observed_s: float = 100,
    busy_s: float = 0,
    starved_s: float = 0,
    suspected_s: float = 0,
    pending_s: float = 0,
    memory_used_bytes: int | None = 60 * GIB,
    starved_now: bool = False,
    present: bool = True,
    idle_s: Mapping[IdleCause, float] = NOTHING,
    waited_s: Mapping[str, float] = NOTHING,
    in_step_s: Mapping[str, float] = NOTHING,
    **of_device: Any,
) -> GpuState:
    """A GPU with 120 GiB of memory and these seconds on its counters.

    Args:
        idle_s: Further idle time by its cause; what is left of the observed time is unknown.
        waited_s: What was starved, by reason.
        in_step_s: What was idle within the step, by reason.
    """
    me = device(index, f"GPU-{index}", memory_capacity_bytes=120 * GIB)
    me = replace(me, **of_device)
    idle_s = {IdleCause.INPUT_WAIT: starved_s, **idle_s}
    unknown_s = observed_s - busy_s - pending_s - sum(idle_s.values())
    totals = GpuTotals(
        observed_ns=int(observed_s * S),
        busy_ns=int(busy_s * S),
        idle_ns=_in_ns({**idle_s, IdleCause.UNKNOWN: unknown_s}),
        input_wait_by_reason_ns=_in_ns(waited_s),
        within_step_by_reason_ns=_in_ns(in_step_s),
        suspected_ns=int(suspected_s * S),
        pending_ns=int(pending_s * S),
        starved_now=starved_now,
    )
    known = healthy_gpu()
    assert known.latest is not None
    latest = known.latest._replace(device=me, memory_used_bytes=memory_used_bytes)
    return known._replace(device=me, totals=totals, latest=latest, present=present)


def _in_ns(seconds: Mapping[Any, float]) -> dict[Any, int]:
    return {name: int(value * S) for name, value in seconds.items()}


def state_of(*gpus: GpuState, age_s: float = 0, **changes: Any) -> MonitorState:
    """What a daemon on real GPUs, with a period of 1 s, said ``age_s`` ago."""
    said_at_ns = time.monotonic_ns() - int(age_s * S)
    changes = {"boot_id": this_boot(), "simulated": False, "source": "nvml", **changes}
    return monitor_state(taken_at_ns=said_at_ns, gpus=gpus, **changes)


def publish(folder: Path, *gpus: GpuState, age_s: float = 0, **changes: Any) -> None:
    """Leave that state in ``folder``, by the daemon's own writer."""
    folder.mkdir(exist_ok=True)
    StateFile(folder / "state.json").write(state_of(*gpus, age_s=age_s, **changes))


def retell(folder: Path, fields: Mapping[str, Any]) -> None:
    """Let that state say this of its first GPU, whether or not a daemon of today would.

    Args:
        folder: Runtime folder.
        fields: By name; ``...`` takes one away.
    """
    path = folder / "state.json"
    document = json.loads(path.read_bytes())
    told = {**document["gpus"][0], **fields}
    document["gpus"][0] = {name: value for name, value in told.items() if value is not ...}
    path.write_text(json.dumps(document), encoding="ascii")


@contextmanager
def daemon(
    folder: Path, *shares: Mapping[str, float], delay_s: float = 0, **changes: Any
) -> Iterator[None]:
    """Let counters move as time goes by, a GPU for each of ``shares``, five times a second.

    Args:
        folder: Runtime folder.
        shares: Such as ``{"busy": 0.4, "starved": 0.6, "disk_bound": 0.5}``, seconds for each
            second that passes.
        delay_s: How long it takes until the daemon is up.
        changes: Fields of the state.
    """
    stop = threading.Event()
    began_s = time.monotonic() + delay_s - 10

    def tick() -> None:
        publish(folder, *_after(time.monotonic() - began_s, shares), **changes)

    def work() -> None:
        stop.wait(delay_s)
        while not stop.is_set():
            tick()
            stop.wait(0.2)

    if not delay_s:
        tick()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _after(passed_s: float, shares: Sequence[Mapping[str, float]]) -> list[GpuState]:
    return [
        gpu(
            index,
            observed_s=passed_s,
            busy_s=passed_s * share.get("busy", 0),
            starved_s=passed_s * share.get("starved", 0),
            suspected_s=passed_s * share.get("suspected", 0),
            waited_s={reason: passed_s * share[reason] for reason in REASONS if reason in share},
        )
        for index, share in enumerate(shares)
    ]

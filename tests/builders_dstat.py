"""A daemon's state file as the dstat plugin meets it, and the plugin as its hosts execute it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumon.core.phase import IdleCause
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.time.totals import GpuTotals
from gpumon.outlets.state_file import StateFile
from tests.builders_state import GIB, S, device, healthy_gpu, monitor_state

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
    **of_device: Any,
) -> GpuState:
    """A GPU with 120 GiB of memory and these seconds on its counters."""
    me = device(index, f"GPU-{index}", memory_capacity_bytes=120 * GIB)
    me = replace(me, **of_device)
    idle_s = observed_s - busy_s - starved_s - pending_s
    totals = GpuTotals(
        observed_ns=int(observed_s * S),
        busy_ns=int(busy_s * S),
        idle_ns={IdleCause.INPUT_WAIT: int(starved_s * S), IdleCause.UNKNOWN: int(idle_s * S)},
        suspected_ns=int(suspected_s * S),
        pending_ns=int(pending_s * S),
        starved_now=starved_now,
    )
    known = healthy_gpu()
    assert known.latest is not None
    latest = known.latest._replace(device=me, memory_used_bytes=memory_used_bytes)
    return known._replace(device=me, totals=totals, latest=latest, present=present)


def state_of(*gpus: GpuState, age_s: float = 0, **changes: Any) -> MonitorState:
    """What a daemon on real GPUs, with a period of 1 s, said ``age_s`` ago."""
    said_at_ns = time.monotonic_ns() - int(age_s * S)
    changes = {"boot_id": this_boot(), "simulated": False, "source": "nvml", **changes}
    return monitor_state(taken_at_ns=said_at_ns, gpus=gpus, **changes)


def publish(folder: Path, *gpus: GpuState, age_s: float = 0, **changes: Any) -> None:
    """Leave that state in ``folder``, by the daemon's own writer."""
    folder.mkdir(exist_ok=True)
    StateFile(folder / "state.json").write(state_of(*gpus, age_s=age_s, **changes))


@contextmanager
def daemon(
    folder: Path, *shares: Mapping[str, float], delay_s: float = 0, **changes: Any
) -> Iterator[None]:
    """Let counters move as time goes by, a GPU for each of ``shares``, five times a second.

    Args:
        folder: Runtime folder.
        shares: Such as ``{"busy": 0.4, "starved": 0.6}``, seconds for each second that passes.
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
        )
        for index, share in enumerate(shares)
    ]

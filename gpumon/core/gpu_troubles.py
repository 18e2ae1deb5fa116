"""What is wrong with each GPU of a running monitor, as of its newest tick."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final, NamedTuple

from gpumon.core.state import GpuState, MonitorState
from gpumon.core.troubles import Trouble, all_troubles, errors_of, lost, throttled_now, vanished
from gpumon.core.units import nanoseconds

_ONE_GPU: Final = re.compile(r"GPU (\d+)(?::(\d+))?: (.*)", re.DOTALL)
_SILENT: Final = "no answer has come of late"


def gpu_troubles(gpu: GpuState, state: MonitorState) -> tuple[Trouble, ...]:
    """All that is wrong with one GPU of a state, the worst first."""
    return all_troubles(told_troubles(gpu, state), gpu.fill, gpu.error, gpu.device.index)


def told_troubles(gpu: GpuState, state: MonitorState) -> tuple[Trouble, ...]:
    """Those that do not follow from its totals: errors, that it is lost, that it is slow now."""
    gone = _lost_by(gpu, state)
    errors = errors_of(gpu.xid_errors, gpu.errors, state.taken_at_ns)
    if gone is not None:
        return gone, *errors
    details = None if gpu.latest is None else gpu.latest.details
    return (*errors, *throttled_now(details, gpu.fill))


def origin_of(state: MonitorState) -> tuple[datetime, int]:
    """When observation began, by the wall clock and on the clock of the state's times."""
    observed_s = max(0.0, state.wall_time_s - state.started_wall_time_s)
    started = datetime.fromtimestamp(state.started_wall_time_s, tz=timezone.utc)
    return started, state.taken_at_ns - nanoseconds(observed_s)


class UnknownGpu(NamedTuple):
    """A GPU that its source names and could never read: it was lost before it was first heard.

    Attributes:
        gpu_index: Its number; of a MIG instance, its GPU's.
        mig_index: Which instance; ``None`` for a GPU.
        error: Why it cannot be read.
    """

    gpu_index: int
    mig_index: int | None
    error: str

    @property
    def label(self) -> str:
        """How people number it, as ``Device.label``."""
        return f"{self.gpu_index}" + ("" if self.mig_index is None else f":{self.mig_index}")

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """That it is lost."""
        return all_troubles((), None, self.error, self.gpu_index)


def unknown_gpu(state: MonitorState) -> UnknownGpu | None:
    """The GPU that is not among a state's, and should be; ``None``: there is none."""
    named = _ONE_GPU.fullmatch(_source_message(state) or "")
    if named is None or not state.gpus:
        return None
    found = UnknownGpu(int(named[1]), None if named[2] is None else int(named[2]), named[3])
    known = {(gpu.device.index, gpu.device.mig_index) for gpu in state.gpus}
    return None if (found.gpu_index, found.mig_index) in known else found


def _lost_by(gpu: GpuState, state: MonitorState) -> Trouble | None:
    last_ns, index = gpu.last_sample_at_ns, gpu.device.index
    if gpu.error is not None:
        return lost(gpu.error, last_ns=last_ns, index=index)
    if not gpu.listed:
        # Instances come and go all day long, as schedulers make them.
        is_instance = gpu.device.parent_uuid is not None
        return None if is_instance else vanished(last_ns=last_ns, index=index)
    if gpu.present:
        return None
    message = _source_message(state)
    of_all = message if message and not _ONE_GPU.fullmatch(message) else _SILENT
    return lost(of_all, last_ns=last_ns, index=index)


def _source_message(state: MonitorState) -> str | None:
    """What the GPUs' source says is wrong now; ``None``: it is well."""
    source = next(iter(state.collectors), None)
    return None if source is None or source.success else source.message

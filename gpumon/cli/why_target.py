"""Which process and which GPU ``gpumon why`` watches."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gpumon.cli.command import print_error
from gpumon.cli.started_command import StartedCommand
from gpumon.core.clock import NS_PER_S, Clock, nanoseconds
from gpumon.core.sample import Frame, GpuSample, ProcessSample
from gpumon.core.stacks.sample_join import IDLE_UP_TO
from gpumon.core.wording import gpus_named, listed
from gpumon.errors import GpumonError, SourceUnavailableError, UsageError
from gpumon.pipeline.stack_watch import Target
from gpumon.pipeline.watch import SourceThread
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.stacks.thread_states import ThreadStates

_FIRST_ANSWER_S: Final = 10.0
_LISTS_WITHIN_NS: Final = 5 * NS_PER_S
_BETWEEN_NS: Final = NS_PER_S // 10
_MOST_NAMED: Final = 4
WANTS_PID: Final = (
    "a simulated GPU has no list of processes: name one, as in `gpumon why 4711 --source ...`"
)


class TargetFinder:
    """Finds the process of a GPU, or the GPU of a process, by the driver's process lists.

    Args:
        source: The GPUs.
        has_lists: Whether the source lists processes: a simulated one does not.
    """

    def __init__(self, source: SourceThread, clock: Clock, *, has_lists: bool) -> None:
        self._source, self._clock, self._has_lists = source, clock, has_lists
        self._tree = ThreadStates(clock)

    def find(self, pid: int | None, label: str | None) -> Target:
        """Return what to watch.

        Raises:
            SourceUnavailableError: No GPU can be read.
            UsageError: There is no such GPU, or the choice is open.
            GpumonError: No process uses the GPU.
        """
        frame = _without_divided(self._first_frame(), label)
        _check_label(label, frame)
        if not self._has_lists:
            if pid is None:
                raise UsageError(WANTS_PID)
            return Target(label or frame.gpus[0].device.label, pid)
        if pid is None:
            return self._of_gpu(frame, label)
        found = self.gpu_of(pid, frame, label)
        if found is not None:
            return found
        where = "any GPU" if label is None else f"GPU {label}"
        if not _hides_processes(frame.gpus):
            raise GpumonError(
                f"process {pid} does not use {where}, by the driver's lists: name the GPU's own "
                f"process ({_processes_of(frame.gpus)})"
            )
        unlisted = _unlisted(pid, frame, label, is_chosen=label is not None)
        if unlisted is None:
            raise GpumonError(
                f"the driver lists no process of this machine: if process {pid} does use a GPU, as "
                f"in a container, name it: `gpumon why {pid} --gpu {frame.gpus[0].device.label}`"
            )
        return unlisted

    def check(self, label: str | None) -> None:
        """Refuse a GPU that is not there.

        Raises:
            SourceUnavailableError: No GPU can be read.
            UsageError: There is no such GPU.
        """
        _check_label(label, _without_divided(self._first_frame(), label))

    def await_command(
        self,
        command: StartedCommand,
        label: str | None,
        length_s: float,
        is_stopped: Callable[[], bool],
    ) -> Target | None:
        """Wait until the command uses a GPU, or runs Python; ``None``: that came to no end."""
        until_ns = self._clock.monotonic_ns() + nanoseconds(length_s)
        while not command.has_ended and not is_stopped() and self._clock.monotonic_ns() < until_ns:
            frame = self.read()
            found = None if frame is None else self._of_command(command.pid, frame, label)
            if found is not None:
                return found
            self._clock.sleep_until_ns(self._clock.monotonic_ns() + _BETWEEN_NS)
        print_error("the command did not use a GPU while it was watched")
        return None

    def _of_command(self, pid: int, frame: Frame, label: str | None) -> Target | None:
        found = self.gpu_of(pid, frame, label) if self._has_lists else None
        if found is not None:
            return found
        python = next(
            (one.pid for one in self._tree.descendants(pid) if self._tree.is_python(one.pid)), None
        )
        if self._has_lists:
            is_hidden = python is not None and _hides_processes(frame.gpus)
            return _unlisted(python, frame, label) if is_hidden and python is not None else None
        return None if python is None else Target(label or frame.gpus[0].device.label, python)

    def read(self) -> Frame | None:
        """The GPUs now, with their process lists; ``None``: no answer."""
        self._source.request(ReadNow.SAMPLES | ReadNow.PROCESSES)
        frames, _, _ = self._source.collect(_FIRST_ANSWER_S)
        return _without_divided(frames[-1], None) if frames else None

    def gpu_of(self, pid: int, frame: Frame, label: str | None = None) -> Target | None:
        """The GPU that the process, a descendant or its parent uses; ``None``: none yet."""
        family = {member.pid for member in self._tree.descendants(pid)}
        for wanted in ({pid}, family, {_parent_of(pid)}):
            used = [
                (gpu, process)
                for gpu in frame.gpus
                for process in gpu.processes or ()
                if process.pid in wanted and label in (None, gpu.device.label)
            ]
            if used:
                gpu, process = max(used, key=lambda pair: pair[1].memory_used_bytes or 0)
                return Target(gpu.device.label, process.pid, _note_on(pid, process.pid, gpu, used))
        return None

    def _of_gpu(self, frame: Frame, label: str | None) -> Target:
        used = [gpu for gpu in frame.gpus if gpu.processes and label in (None, gpu.device.label)]
        if not used:
            errors = [gpu.error for gpu in frame.gpus if label in (None, gpu.device.label)]
            error = next(filter(None, errors), None)
            if error is not None:
                raise SourceUnavailableError(error)
            where = "any GPU" if label is None else f"GPU {label}"
            raise GpumonError(f"no process uses {where}: start the training script, and try again")
        if len(used) > 1:
            raise UsageError(
                f"processes use {gpus_named(gpu.device.label for gpu in used)}: choose one with "
                "--gpu N"
            )
        gpu = used[0]
        processes = sorted(gpu.processes or (), key=lambda one: -(one.memory_used_bytes or 0))
        note = ""
        if len(processes) > 1:
            note = (
                f"{len(processes)} processes use GPU {gpu.device.label}: this is the one with "
                f"the most memory; the others are {_pids(processes[1:])}."
            )
        return Target(gpu.device.label, processes[0].pid, note)

    def _first_frame(self) -> Frame:
        """The first reading, which for a driver has its process lists, if it has any."""
        until_ns = self._clock.monotonic_ns() + _LISTS_WITHIN_NS
        while True:
            self._source.request(ReadNow.SAMPLES | ReadNow.PROCESSES)
            frames, error, _ = self._source.collect(_FIRST_ANSWER_S)
            if self._source.fatal is not None:
                raise self._source.fatal
            if not frames:
                wait_s = f"the driver has not answered within {_FIRST_ANSWER_S:.0f} s"
                raise SourceUnavailableError(error or wait_s)
            frame = frames[-1]
            if not frame.gpus:
                raise SourceUnavailableError("the driver lists no GPU")
            has_all = all(gpu.processes is not None or gpu.error for gpu in frame.gpus)
            now_ns = self._clock.monotonic_ns()
            if has_all or not self._has_lists or now_ns > until_ns:
                return frame
            self._clock.sleep_until_ns(now_ns + _BETWEEN_NS)


def _note_on(
    asked_pid: int,
    pid: int,
    chosen: GpuSample,
    used: Sequence[tuple[GpuSample, ProcessSample]],
) -> str:
    """Why this process and this GPU, of those that were found; empty: there was no choice."""
    label = chosen.device.label
    if pid != asked_pid:
        kin = {process.pid for _, process in used}
        others = [process for _, process in used if process.pid != pid]
        note = f"GPU {label} is used by process {pid} of that tree."
        if len(kin) > 1:
            note = (
                f"{len(kin)} processes of that tree use a GPU: this is the one with the most "
                f"memory; the others are {_pids(others)}."
            )
        return note
    labels = [gpu.device.label for gpu, _ in used]
    if len(labels) > 1:
        return f"the process uses {gpus_named(labels)}: choose another one with --gpu N."
    return ""


def _hides_processes(gpus: Sequence[GpuSample]) -> bool:
    """Whether no process of the driver's lists exists here: a container hides them."""
    return not any(
        Path(f"/proc/{process.pid}").exists() for gpu in gpus for process in gpu.processes or ()
    )


def _unlisted(
    pid: int, frame: Frame, label: str | None, *, is_chosen: bool = False
) -> Target | None:
    """The process and the only GPU that works, or is chosen; ``None``: none, or several."""
    gpus = [gpu for gpu in frame.gpus if label in (None, gpu.device.label)]
    working = [gpu for gpu in gpus if any(one.busy_ratio > IDLE_UP_TO for one in gpu.busy)]
    found = gpus if is_chosen else working
    if len(found) != 1:
        return None
    name = found[0].device.label
    return Target(
        name, pid, f"the driver does not list who uses GPU {name}: it is taken to be process {pid}."
    )


def _without_divided(frame: Frame, label: str | None) -> Frame:
    """Leave out GPUs that are divided into MIG instances: only these report what is used.

    Raises:
        UsageError: Such a GPU was chosen.
    """
    parents = {gpu.device.parent_uuid for gpu in frame.gpus}
    left = tuple([gpu for gpu in frame.gpus if gpu.device.uuid not in parents])
    for gpu in frame.gpus:
        if gpu.device.uuid in parents and gpu.device.label == label:
            parts = [one for one in left if one.device.parent_uuid == gpu.device.uuid]
            raise UsageError(f"GPU {label} is divided into {_labels(parts)}: choose one of these")
    return frame._replace(gpus=left)


def _check_label(label: str | None, frame: Frame) -> None:
    if label is not None and all(gpu.device.label != label for gpu in frame.gpus):
        raise UsageError(f"there is no GPU {label}: this source has {_labels(frame.gpus)}")


def _labels(gpus: Sequence[GpuSample]) -> str:
    return gpus_named(gpu.device.label for gpu in gpus)


def _pids(processes: Sequence[ProcessSample]) -> str:
    return listed([str(process.pid) for process in processes], most=_MOST_NAMED)


def _processes_of(gpus: Sequence[GpuSample]) -> str:
    named = [f"{_pids(gpu.processes)} on GPU {gpu.device.label}" for gpu in gpus if gpu.processes]
    return listed(named, most=_MOST_NAMED)


def _parent_of(pid: int) -> int | None:
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
        parent = int(raw[raw.rindex(b")") + 1 :].split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return parent if parent > 1 and parent != os.getpid() else None

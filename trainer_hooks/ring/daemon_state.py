"""Read a daemon's state file in a training process, and warn about GPUs that do not match."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from gpumon.core.attribution.visible_devices import (
    BEGINNING_NS,
    GpuName,
    problem_with_names,
    problem_with_work,
)
from gpumon.core.ring_format.events import RunFacts
from gpumon.core.ring_format.runtime_paths import (
    FILE_FLAGS,
    MAX_STATE_BYTES,
    STATE_FILE,
    STATE_SCHEMA,
    distrust,
    explicit_folder,
    is_fresh,
    reader_folders,
)
from gpumon.core.wording import label_text
from trainer_hooks import devices as gpu_list
from trainer_hooks.ring.guard import warn_quietly

NOT_A_STATE: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors of reading a state that no daemon wrote."""


def state_folders(environ: Mapping[str, str], uid: int) -> list[Path]:
    """Return the folders that may hold the state of a daemon that sees this ring, best first."""
    explicit = explicit_folder(environ) is not None
    folders = reader_folders(environ, uid)
    return [folder for folder in folders if _is_trusted(folder, uid, explicit=explicit)]


def _is_trusted(folder: Path, uid: int, *, explicit: bool) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return True  # it may be created later; it is checked again when it is opened
    return distrust(folder, status, uid=uid, explicit=explicit) is None


def fresh_state(path: Path, boot_id: str, now_ns: int) -> dict[str, Any] | None:
    """Return the state in a file if a daemon of this boot renewed it just now. Never blocks."""
    try:
        descriptor = os.open(path, FILE_FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            raw = os.read(descriptor, MAX_STATE_BYTES)
        finally:
            os.close(descriptor)
        state = json.loads(raw)
        is_renewed = is_fresh(state["monotonic_ns"], state["period_ns"], now_ns)
        is_ours = state["schema"] == STATE_SCHEMA and state["boot_id"] == boot_id
        is_of_now = not state.get("replayed")  # a replayed recording says nothing about now
    except (OSError, RecursionError, *NOT_A_STATE):
        return None
    return dict(state) if is_renewed and is_ours and is_of_now else None


def newest_state(folders: Sequence[Path], boot_id: str, now_ns: int) -> dict[str, Any] | None:
    """Return the state of a running daemon from the first of ``folders`` that has one."""
    states = (fresh_state(folder / STATE_FILE, boot_id, now_ns) for folder in folders)
    return next((state for state in states if state is not None), None)


def gpus_in(state: Mapping[str, Any]) -> list[GpuName]:
    """Return all GPUs that the daemon watches.

    Raises:
        KeyError: The state is not a daemon's; or another of ``NOT_A_STATE``.
    """
    return [GpuName(str(gpu.get("label", gpu["index"])), str(gpu["uuid"])) for gpu in state["gpus"]]


def runs_in(state: Mapping[str, Any], facts: RunFacts) -> list[Mapping[str, Any]]:
    """Return this process's run as the daemon knows it; empty where it is unknown or ambiguous.

    Raises:
        KeyError: The state is not a daemon's; or another of ``NOT_A_STATE``.
    """
    place = (label_text(facts.job), facts.rank)
    runs = [run for run in state["runs"] if (run["job"], run["rank"]) == place and run["alive"]]
    # In a container the daemon knows the process by another number.
    return [run for run in runs if run["pid"] == facts.pid] or (runs if len(runs) == 1 else [])


class GpuWarnings:
    """Warn once per run that it will explain no GPU, and say what to set.

    Each check reads a daemon's state file once; without a daemon it is silent. Never blocks or
    raises.
    """

    def __init__(self, *, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._has_begun = False
        self._is_settled = False
        self._ended_ns = -BEGINNING_NS

    def check_names(self, facts: RunFacts) -> None:
        """Check that the GPUs the run has named exist."""
        if facts.gpus is not None:
            self._look(facts, self._doubt_of_start)

    def check_start(self, facts: RunFacts) -> None:
        """Check the GPUs once as the run begins."""
        if not self._has_begun:
            self._has_begun = True
            self._look(facts, self._doubt_of_start)

    def check_end(self, facts: RunFacts, steps: int) -> None:
        """Check after a run of ``steps`` steps whether it was bound to a GPU."""
        now_ns = self._now_ns()
        if steps and now_ns - max(facts.started_ns, self._ended_ns) >= BEGINNING_NS:
            self._ended_ns = now_ns  # ``fit`` may be called a hundred times a second
            self._look(facts, self._doubt_of_end)

    def _look(
        self, facts: RunFacts, doubt_of: Callable[[dict[str, Any], RunFacts], str | None]
    ) -> None:
        if self._is_settled:
            return
        try:
            folders = state_folders(os.environ, os.geteuid())
            state = newest_state(folders, facts.boot_id, self._now_ns())
            doubt = None if state is None or not state["gpus"] else doubt_of(state, facts)
        except Exception:  # noqa: BLE001 (not a daemon's state)
            doubt = None
        if doubt is not None:
            self._is_settled = True
            warn_quietly(f"to gpumon, this run {doubt}")

    def _doubt_of_start(self, state: dict[str, Any], facts: RunFacts) -> str | None:
        if facts.gpus is None and state["simulated"]:
            return problem_with_work(None, gpus_in(state), simulated=True, pid=facts.pid)
        return problem_with_names(facts.gpus, gpus_in(state))

    def _doubt_of_end(self, state: dict[str, Any], facts: RunFacts) -> str | None:
        runs = runs_in(state, facts)
        if not runs:
            return None
        if any(run["gpus"] for run in runs):
            self._is_settled = True
            return None
        return problem_with_work(
            facts.gpus,
            gpus_in(state),
            simulated=state["simulated"],
            pid=runs[0]["pid"],
            on_cpu=facts.on_cpu,
        )


def gpu_names(devices: Sequence[str], named: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return gpumon's names of these devices.

    Args:
        devices: TensorFlow's names.
        named: The GPUs that the user named for the run, if any, in the order of the devices:
            the only way to name those of logical devices.

    Returns:
        UUIDs, or indices as text; ``None`` if unknown.

    >>> gpu_names(["CPU:1", "CPU:2"], ["0", "1"]), gpu_names(["CPU:1"], None)
    (('0', '1'), None)
    """
    if named is not None and len(named) == len(devices):
        return tuple(named)
    visible = {f"GPU:{gpu.number}": gpu for gpu in gpu_list.visible_gpus()}
    if any(device not in visible for device in devices):
        return None
    return tuple(visible[device].uuid or str(visible[device].index) for device in devices)

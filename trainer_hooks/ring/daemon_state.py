"""What a daemon's state file says to a training: which GPUs there are, and which are this run's."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gpumon.core.attribution.visible_devices import GpuName
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

NOT_A_STATE: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a state raises that no daemon wrote."""


def state_folders(environ: Mapping[str, str], uid: int) -> list[Path]:
    """Folders that may hold the state of a daemon that sees this process' ring, best first."""
    explicit = explicit_folder(environ) is not None
    folders = reader_folders(environ, uid)
    return [folder for folder in folders if _is_trusted(folder, uid, explicit=explicit)]


def _is_trusted(folder: Path, uid: int, *, explicit: bool) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return True  # it may be made later; whoever makes it in /tmp must be the user
    return distrust(folder, status, uid=uid, explicit=explicit) is None


def fresh_state(path: Path, boot_id: str, now_ns: int) -> dict[str, Any] | None:
    """The state in a file, if a daemon of this boot renewed it a moment ago. Never blocks."""
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
        is_of_now = not state.get("replayed")  # what a recording played says is of no use here
    except (OSError, RecursionError, *NOT_A_STATE):
        return None
    return dict(state) if is_renewed and is_ours and is_of_now else None


def newest_state(folders: Sequence[Path], boot_id: str, now_ns: int) -> dict[str, Any] | None:
    """The state of a daemon that runs now, in the first of ``folders`` that has one."""
    states = (fresh_state(folder / STATE_FILE, boot_id, now_ns) for folder in folders)
    return next((state for state in states if state is not None), None)


def gpus_in(state: Mapping[str, Any]) -> list[GpuName]:
    """All GPUs that the daemon watches.

    Raises:
        KeyError: It is not what a daemon writes; or another of ``NOT_A_STATE``.
    """
    return [GpuName(str(gpu.get("label", gpu["index"])), str(gpu["uuid"])) for gpu in state["gpus"]]


def runs_in(state: Mapping[str, Any], facts: RunFacts) -> list[Mapping[str, Any]]:
    """This process' run, as the daemon knows it; empty where it does not, or cannot tell.

    Raises:
        KeyError: It is not what a daemon writes; or another of ``NOT_A_STATE``.
    """
    place = (label_text(facts.job), facts.rank)
    runs = [run for run in state["runs"] if (run["job"], run["rank"]) == place and run["alive"]]
    # In a container the daemon knows the process by another number.
    return [run for run in runs if run["pid"] == facts.pid] or (runs if len(runs) == 1 else [])

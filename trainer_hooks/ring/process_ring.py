"""The one ring of this process, made when it is first needed."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from gpumon.core.ring_events import RunFacts
from gpumon.core.ring_facts import have_room_for_gpus
from gpumon.core.runtime_paths import RUNTIME_VARIABLE
from gpumon.errors import RingError
from trainer_hooks.quiet_warning import QuietWarningOnce, warn_quietly
from trainer_hooks.ring.dead_rings import sweep_dead_rings
from trainer_hooks.ring.ring_folder import find_ring_folder
from trainer_hooks.ring.ring_memory import make_ring
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.ring.run_facts import read_run_facts

_ANOTHER_FOLDER = (
    f". To have them, set {RUNTIME_VARIABLE}, for this training and for the daemon, "
    "to a folder of yours that has room for 2 MiB"
)
_warn_of_gpus = QuietWarningOnce()
_warn_of_name = QuietWarningOnce()


class ProcessRing:
    """A writer, or none where no ring could be made, and the thread whose phases count.

    Attributes:
        writer: ``None``: nothing is recorded in this process.
        thread: Identity of the thread that may change phases.
        depth: How many ``phase()`` regions that thread is in.
    """

    def __init__(self, writer: RingWriter | None) -> None:
        self.writer = writer
        self.thread = threading.get_ident()
        self.depth = 0

    @property
    def writer_here(self) -> RingWriter | None:
        """The writer, if the calling thread may change phases."""
        return self.writer if threading.get_ident() == self.thread else None

    def adopt_thread(self) -> int:
        """From now on the calling thread is the one whose phases count; return who was."""
        before, self.thread = self.thread, threading.get_ident()
        return before

    def give_back_thread(self, before: int) -> None:
        """The calling thread has done its part: ``before`` is again the one that counts."""
        if self.thread == threading.get_ident():
            self.thread = before


class _Slot:
    """What module-level state there is: one attribute, set once under a lock."""

    ring: ProcessRing | None = None
    lock = threading.Lock()


def process_ring() -> ProcessRing:
    """This process' ring, made by the first call. Never raises."""
    ring = _Slot.ring
    if ring is None:
        with _Slot.lock:
            ring = _Slot.ring
            if ring is None:
                ring = _Slot.ring = ProcessRing(_new_writer())
    return ring


def describe_run(
    *,
    run: str | None = None,
    gpus: Sequence[int | str] | None = None,
    framework: str | None = None,
    loader: dict[str, str | int | float | bool | None] | None = None,
) -> None:
    """Say more about this run than its environment does; what is ``None`` stays as it was."""
    writer = process_ring().writer
    if writer is None or not writer.enabled:
        return
    try:
        if run is not None and writer.steps and not _is_called(writer.facts, run):
            _warn_of_name(
                f"gpumon cannot tell the run {run!r} from {writer.facts.run!r}, which this process "
                "is already: its steps and phases are added to those; give each run a process"
            )
            run = None
        facts = _restated(writer.facts, run, gpus, framework, loader)
        writer.restate(facts)
        _say_where_gpus_do_not_fit(facts)
    except Exception as error:  # noqa: BLE001 (an odd name must not end a training)
        _warn(error)


def _is_called(facts: RunFacts, run: str) -> bool:
    return read_run_facts(run=run, gpus=None, started_ns=facts.started_ns).run == facts.run


def _restated(
    old: RunFacts,
    run: str | None,
    gpus: Sequence[int | str] | None,
    framework: str | None,
    loader: dict[str, str | int | float | bool | None] | None,
) -> RunFacts:
    new = read_run_facts(
        run=run, gpus=gpus, framework=framework or old.framework, started_ns=old.started_ns
    )
    if run is None:
        new = replace(new, run=old.run, job=old.job)
    if gpus is None:
        new = replace(new, gpus=old.gpus)
    return replace(
        new,
        pid=old.pid,
        loader=old.loader if loader is None else loader,
        callback_ns=old.callback_ns,
    )


def _new_writer() -> RingWriter | None:
    try:
        started_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        facts = read_run_facts(started_ns=started_ns)
        folder = find_ring_folder(os.environ, os.geteuid())
        sweep_dead_rings(folder.path, boot_id=facts.boot_id, now_ns=started_ns, wall_ns=wall_ns)
        memory = make_ring(folder, facts, wall_ns=wall_ns)
        _say_where_gpus_do_not_fit(facts)
        return RingWriter(memory, facts, wall_ns=wall_ns, on_trouble=_warn)
    except (OSError, RingError) as error:
        _warn(error, what_to_do=_ANOTHER_FOLDER)
        return None
    except Exception as error:  # noqa: BLE001 (no ring, but the training goes on)
        _warn(error)
        return None


def _warn(error: Exception, what_to_do: str = "") -> None:
    warn_quietly(f"gpumon records no phases of this process: {error}{what_to_do}")


def _say_where_gpus_do_not_fit(facts: RunFacts) -> None:
    if not have_room_for_gpus(facts):
        _warn_of_gpus(
            "the list of this process' GPUs is too long for gpumon, which asks the driver instead "
            "where the process runs; a short one may be given as GPUMON_GPUS=0,1,..."
        )


def _end() -> None:
    """The process is about to go: what that takes is no part of its training."""
    if _Slot.ring is not None and _Slot.ring.writer is not None:
        _Slot.ring.writer.end()


def _forget_in_child() -> None:
    """A forked child records nothing, and must not wait for a lock its parent held."""
    _Slot.lock = threading.Lock()
    if _Slot.ring is not None:
        _Slot.ring = ProcessRing(None)


atexit.register(_end)
os.register_at_fork(after_in_child=_forget_in_child)

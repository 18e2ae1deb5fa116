"""This process's one ring, created when first needed, and the runs that write to it."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock, get_ident, get_native_id
from typing import Protocol

from gpumon.core.phase import PHASE_NUMBER, PHASES, WORK_PHASES
from gpumon.core.ring_format.events import TRAINING_OVER, LoaderFacts, RunFacts
from gpumon.core.ring_format.facts import are_shares, have_room_for_gpus
from gpumon.core.ring_format.runtime_paths import RUNTIME_VARIABLE
from gpumon.errors import RingError
from trainer_hooks.ring import phase_modes as modes
from trainer_hooks.ring.call_frames import is_in_our_code
from trainer_hooks.ring.daemon_state import GpuWarnings, gpu_names
from trainer_hooks.ring.guard import QuietWarningOnce, warn_quietly
from trainer_hooks.ring.mapped_file import RingMemory, find_ring_folder, make_ring
from trainer_hooks.ring.other_rings import is_loader_worker, sweep_dead_rings
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.ring.run_facts import read_run_facts

_WORK_NUMBERS = frozenset(PHASE_NUMBER[phase] for phase in WORK_PHASES)
_ANOTHER_FOLDER = (
    f". To have them, set {RUNTIME_VARIABLE}, for this run and for the daemon, "
    "to a folder of yours that has room for 2 MiB"
)
_SHARES_IGNORED = "gpumon does not know how batches are split"
_warn_of_gpus = QuietWarningOnce()
_warn_of_shares = QuietWarningOnce()
_warn_of_name = QuietWarningOnce()


class ProcessRing:
    """The writer, ``None`` where no ring could be created, and the thread whose phases count.

    Attributes:
        writer: ``None``: nothing is recorded in this process.
        thread: Identity of the thread that may change phases.
        depth: How many ``phase()`` regions that thread is in.
        current_run: The tagged run that sets the phases; ``None``: only the user's code does.
    """

    def __init__(self, writer: RingWriter | None, path: Path | None = None) -> None:
        """Let the calling thread change phases; the ring is at ``path``."""
        self.writer = writer
        self.thread = get_ident()
        self.depth = 0
        self.current_run: NestedRun | None = None
        self._path = path
        self._gpu_warnings = GpuWarnings()

    @property
    def writer_for_this_thread(self) -> RingWriter | None:
        """The writer, if the calling thread may change phases."""
        return self.writer if get_ident() == self.thread else None

    def begin_run(self, run: ActiveRun) -> NestedRun:
        """Begin a run: until it ends, only the calling thread's phases count."""
        self.check_gpus()
        before = modes.OTHER if self.writer is None else self.writer.present
        nested = NestedRun(
            run,
            self.current_run,
            before,
            depth=self.depth,
            thread_before=self.thread,
            tid_before=None if self.writer is None else self.writer.facts.tid,
        )
        self.current_run, self.thread = nested, get_ident()
        self._record_thread(get_native_id())
        return nested

    def end_run(self, run: NestedRun) -> None:
        """End a run and return to the phase before it. May be called from any thread.

        If the run's thread has gone on to something else, its phase is left alone.
        """
        run.is_over = True
        self._check_gpus_at_end()
        if self.current_run is not run or self.depth > run.depth:
            return
        own_thread, thread = get_ident(), self.thread
        if thread != own_thread:
            # Only one thread may write. After this assignment the other thread no longer
            # writes; only if it is already inside our code must we restore it.
            self.thread = own_thread
            if is_in_our_code(thread):
                self.thread = thread
                return
        phase_mode = run.phase_afterwards()
        if self.writer is not None and self.writer.present != phase_mode:
            self.writer.enter(*phase_mode)
        if self._unwind() is None and self.writer is not None and phase_mode == modes.OTHER:
            self.writer.event(TRAINING_OVER)

    def check_gpus(self, *, only_names: bool = False) -> None:
        """Warn if the GPUs named for the run cannot be right; see ``GpuWarnings``.

        Args:
            only_names: More about them may follow.
        """
        if self.writer is None:
            return
        if only_names:
            self._gpu_warnings.check_names(self.writer.facts)
        else:
            self._gpu_warnings.check_start(self.writer.facts)

    def end(self) -> None:
        if self.writer is not None:
            self._check_gpus_at_end()
            self.writer.end()

    def _check_gpus_at_end(self) -> None:
        if self.writer is not None and self.writer.enabled:
            self._gpu_warnings.check_end(self.writer.facts, self.writer.steps)

    def region_closes(self, phase_mode: modes.PhaseMode) -> modes.PhaseMode:
        """Return the phase after a region, inside a run or around one, that began in this phase."""
        depth, run = self.depth, self.current_run
        if phase_mode[0] == modes.START_UP[0] and depth == 0 and run is not None and run.depth > 0:
            phase_mode = modes.OTHER  # after a region, start-up is over
        while run is not None and depth < run.depth:  # closed before that run, so it has raised
            run.depth, run.before = depth, phase_mode
            run = run.outer
        run = self.current_run
        if run is not None and run.is_over and depth <= run.depth:
            phase_mode = run.phase_afterwards()
            self._unwind()
        return phase_mode

    def report_shares(self, shares: Mapping[str, float]) -> None:
        """Write each GPU's share of a batch from now on; see ``RunFacts.shares``. Never raises.

        An event marks a change; the first shares of a process are not a change, nor is removing
        them. Called by the training thread, or before training starts.

        Args:
            shares: Empty: batches are no longer split.
        """
        writer = self.writer
        if writer is None or not writer.enabled:
            return
        try:
            facts, new = writer.facts, {str(gpu): float(share) for gpu, share in shares.items()}
            if new == facts.shares:
                return
            if not are_shares(new):
                _warn_of_shares(f"{_SHARES_IGNORED}: {new} are not parts of one batch")
                return
            changes = facts.ratio_changes + bool(new and facts.shares)
            writer.write_facts(replace(facts, shares=new, ratio_changes=changes))
            if changes > facts.ratio_changes:
                writer.event(changes)
        except Exception as error:  # noqa: BLE001 (odd shares must not end a run)
            _warn_of_shares(f"{_SHARES_IGNORED}: {error}")

    def is_untouched(self) -> bool:
        """Whether nothing was recorded but that the process starts up."""
        writer = self.writer
        if writer is None or self.current_run is not None or self.depth:
            return False
        if writer.facts.loader or writer.facts.shares:
            return False
        is_starting = writer.steps == 0 and writer.present[0] == modes.START_UP[0]
        others = (number for number in range(len(PHASES)) if number != modes.START_UP[0])
        return is_starting and not any(writer.spent_ns(number) for number in others)

    def withdraw(self) -> None:
        """Delete the ring; readers forget it."""
        if self.writer is not None and self._path is not None:
            self.writer.end()
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _unwind(self) -> NestedRun | None:
        """Restore the thread that finished runs replaced; return the run that goes on, if any."""
        run, tid = self.current_run, None
        while run is not None and run.is_over and self.depth <= run.depth:
            self.thread, tid, run = run.thread_before, run.tid_before, run.outer
        self.current_run = run
        self._record_thread(tid)
        return run

    def _record_thread(self, tid: int | None) -> None:
        """Write the id of the thread whose phases count, if known and changed."""
        writer = self.writer
        if writer is not None and tid not in (None, writer.facts.tid):
            writer.write_facts(replace(writer.facts, tid=tid))


class _Slot:
    """The module's state: the ring, set under a lock.

    A signal handler may run on the thread that holds the lock: it must neither wait for it nor
    create a second ring.
    """

    ring: ProcessRing | None = None
    is_being_made = False
    is_worker: bool | None = None  # of a process with a ring; None: not known yet
    lock = RLock()


def process_ring() -> ProcessRing:
    """Return this process's ring, creating it at the first call. Never raises."""
    ring = _Slot.ring
    return _ring_made_now() if ring is None else ring


def ring_so_far() -> ProcessRing | None:
    """Return this process's ring if there is one."""
    return _Slot.ring


def report_gpu_shares(devices: Sequence[str], shares: Sequence[float]) -> None:
    """Write the shares to this process's ring, if it has one. Never raises.

    Args:
        devices: TensorFlow's names, such as ``"GPU:0"``.
        shares: Each one's part of every batch, 0 to 1.
    """
    ring = _Slot.ring
    if ring is None or ring.writer is None:
        return
    names = gpu_names(devices, ring.writer.facts.gpus)
    if names is not None:
        ring.report_shares(dict(zip(names, shares, strict=True)))


def ring_for_phase(number: int) -> ProcessRing | None:
    """Return this process's ring, creating it if that phase begins a run. Never raises.

    In a worker of a process that has a ring, only a step, a tagger or a phase of ``WORK_PHASES``
    creates one; until then ``None``.
    """
    ring = _Slot.ring
    if ring is None and number not in _WORK_NUMBERS:
        if _Slot.is_worker is None:
            _Slot.is_worker = is_loader_worker()
        if _Slot.is_worker:
            return None
    return process_ring()


def withdraw_run() -> None:
    """Delete the ring of a refused tagger, if it holds nothing but the name."""
    with _Slot.lock:
        ring = _Slot.ring
        if ring is not None and ring.is_untouched():
            _Slot.ring = None
            ring.withdraw()


def announce_run(
    *, run: str | None, gpus: Sequence[int | str] | None, framework: str | None
) -> None:
    """Write what a tagger is for as soon as it is created.

    Once a step was recorded, everything but a refused name waits for the tagger's own training,
    which may never start: the ring describes what has trained.
    """
    writer = process_ring().writer
    if writer is not None and writer.steps:
        gpus = framework = None
    describe_run(run=run, gpus=gpus, framework=framework)


def describe_run(
    *,
    run: str | None = None,
    gpus: Sequence[int | str] | None = None,
    framework: str | None = None,
    loader: LoaderFacts | None = None,
    on_cpu: bool | None = None,
) -> None:
    """Write more about this run than its environment says; ``None`` leaves a fact as it was."""
    writer = process_ring().writer
    if writer is None or not writer.enabled:
        return
    try:
        name = None if _is_refused(writer, run) else run
        facts = _updated_facts(writer.facts, name, gpus, framework, loader)
        facts = facts if on_cpu is None else replace(facts, on_cpu=on_cpu)
        if facts != writer.facts:
            writer.write_facts(facts)
            _say_where_gpus_do_not_fit(facts)
            if gpus is not None:
                process_ring().check_gpus(only_names=True)
    except Exception as error:  # noqa: BLE001 (an odd name must not end a run)
        _warn(error)


def _is_refused(writer: RingWriter, run: str | None) -> bool:
    """Whether a name comes too late, after steps of another one; a warning says so."""
    facts = writer.facts
    if run is None or not writer.steps:
        return False
    if read_run_facts(run=run, gpus=None, started_ns=facts.started_ns).run == facts.run:
        return False
    _warn_of_name(
        f"gpumon cannot record {run!r} as a separate run: this process is already recorded as "
        f"{facts.run!r}, which gets its steps and phases; give each run its own process"
    )
    return True


def _updated_facts(
    old: RunFacts,
    run: str | None,
    gpus: Sequence[int | str] | None,
    framework: str | None,
    loader: LoaderFacts | None,
) -> RunFacts:
    new = read_run_facts(
        run=run, gpus=gpus, framework=framework or old.framework, started_ns=old.started_ns
    )
    named = old if run is None else new
    return replace(
        new,
        run=named.run,
        job=named.job,
        gpus=(old if gpus is None else new).gpus,
        pid=old.pid,
        tid=old.tid,
        loader=old.loader if loader is None else loader,
        callback_ns=old.callback_ns,
        shares=old.shares,
        ratio_changes=old.ratio_changes,
        on_cpu=old.on_cpu,
    )


def _ring_made_now() -> ProcessRing:
    with _Slot.lock:
        if _Slot.is_being_made:  # interrupted by a signal, whose handler records nothing
            return ProcessRing(None)
        _Slot.is_being_made = True
        try:
            ring = _Slot.ring
            if ring is None:
                ring = _Slot.ring = _new_ring()
            return ring
        finally:
            _Slot.is_being_made = False


def _new_ring() -> ProcessRing:
    try:
        started_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        facts = read_run_facts(started_ns=started_ns)
        memory = _new_memory(facts, wall_ns)
        _say_where_gpus_do_not_fit(facts)
        writer = RingWriter(memory, facts, wall_ns=wall_ns, on_trouble=_warn)
        ring = ProcessRing(writer, memory.path)
        ring.check_gpus(only_names=True)
        return ring
    except (OSError, RingError) as error:
        _warn(error, what_to_do=_ANOTHER_FOLDER)
    except Exception as error:  # noqa: BLE001 (no ring, but the run goes on)
        _warn(error)
    return ProcessRing(None)


def _new_memory(facts: RunFacts, wall_ns: int) -> RingMemory:
    try:
        return _memory_in_a_folder(facts, wall_ns)
    except FileNotFoundError:  # the folder was removed just now: use another
        return _memory_in_a_folder(facts, wall_ns)


def _memory_in_a_folder(facts: RunFacts, wall_ns: int) -> RingMemory:
    folder, now_ns = find_ring_folder(os.environ, os.geteuid()), facts.started_ns
    sweep_dead_rings(folder.path, boot_id=facts.boot_id, now_ns=now_ns, wall_ns=wall_ns)
    return make_ring(folder, facts, wall_ns=wall_ns)


def _warn(error: Exception, what_to_do: str = "") -> None:
    warn_quietly(f"gpumon records no phases of this process: {error}{what_to_do}")


def _say_where_gpus_do_not_fit(facts: RunFacts) -> None:
    if not have_room_for_gpus(facts):
        _warn_of_gpus(
            "the list of this process's GPUs is too long for gpumon, so it asks the driver which "
            "GPUs the process uses; GPUMON_GPUS=0,1,... gives a short list"
        )


def _end() -> None:
    if _Slot.ring is not None:
        _Slot.ring.end()


def _forget_in_child() -> None:
    """A forked child records nothing and must not wait for a lock its parent held."""
    _Slot.lock = RLock()
    _Slot.is_being_made = False
    _Slot.is_worker = None
    if _Slot.ring is not None:
        _Slot.ring = ProcessRing(None)


atexit.register(_end)
os.register_at_fork(after_in_child=_forget_in_child)


class ActiveRun(Protocol):
    """A tagged run."""

    def is_running(self) -> bool:
        """Whether the run is still going on; a run that raised may not have been noticed."""
        ...


class NestedRun:
    """One tagged run, until it is over and all regions opened in it are closed.

    Attributes:
        outer: The run it interrupts; ``None``: the user's own loop.
        before: The phase when it began, or when the region around it closed.
        depth: How many of the user's regions are open around it.
        thread_before: The thread whose phases counted before.
        tid_before: That thread's id in Linux; ``None``: unknown.
        is_over: Whether the run has ended.
    """

    __slots__ = (
        "_is_in_a_run", "_is_on_its_thread", "_run", "before", "depth", "is_over", "outer",
        "thread_before", "tid_before",
    )  # fmt: skip

    def __init__(
        self,
        run: ActiveRun,
        outer: NestedRun | None,
        before: modes.PhaseMode,
        *,
        depth: int,
        thread_before: int,
        tid_before: int | None,
    ) -> None:
        """Begin on the calling thread; holds ``run`` weakly."""
        self.outer, self.before, self.depth = outer, before, depth
        self.thread_before, self.tid_before = thread_before, tid_before
        self.is_over = False
        self._run = weakref.ref(run)
        self._is_on_its_thread = thread_before == get_ident()
        self._is_in_a_run = outer is not None and self._is_on_its_thread and outer.is_running()

    def is_running(self) -> bool:
        """Whether its run is still going on."""
        run = self._run()
        return run is not None and run.is_running()

    def phase_afterwards(self) -> modes.PhaseMode:
        """Return the phase after this run: the one before it, if what it belonged to goes on."""
        nested, outer = self, self.outer  # no recursion: errors may keep any number of runs
        while True:
            if nested._is_on_its_thread and nested.depth > (0 if outer is None else outer.depth):
                return nested.before
            if outer is None:
                return modes.OTHER
            if not outer.is_over:
                if nested._is_in_a_run:
                    return nested.before
                if not nested._is_on_its_thread:
                    return modes.OTHER
            nested, outer = outer, outer.outer

"""Tags for the user's own training loop: ``phase()``, ``timed()``, ``step()``.

The thread of the first call creates the process's ring, and only that thread changes phases; in
other threads, and in forked children, the tags do nothing. In a process that ``multiprocessing``
started from a tagged one they do nothing before its first step, tagger, or region that is a step,
validation or prediction: a data loader's worker is not a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from operator import index
from threading import get_ident
from types import MappingProxyType
from typing import Final, Generic, TypeVar, overload

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from gpumon.core.ring_format.events import LOOP_BEGAN, LOOP_ENDED
from gpumon.core.ring_format.format import MODE_SHIFT
from trainer_hooks.ring import phase_modes as modes
from trainer_hooks.ring.guard import QuietWarningOnce, QuietWarningPerName, passes_through, quietly
from trainer_hooks.ring.process_ring import process_ring, ring_for_phase, ring_so_far
from trainer_hooks.ring.ring_writer import START_UP
from trainer_hooks.trainers.loader_facts import has_facts, loader_facts, report_loader
from trainer_hooks.trainers.patching import Proxy

T = TypeVar("T")

_MODE_OF: Final = dict((modes.VALIDATION, modes.PREDICT))
"""The mode of a phase, by its number."""
_NUMBER_NAMED: Final = MappingProxyType({name.value: PHASE_NUMBER[name] for name in PHASES})
_MAX_SAMPLES: Final = 1 << 40
"""More samples in one batch are a mistake, and their sum would not fit the ring."""

_warn_of_phase = QuietWarningPerName(8)
_warn_of_samples = QuietWarningOnce()


class phase:  # noqa: N801 (used like a keyword: ``with phase("input_wait"):``)
    """The block belongs to one phase of the run.

    ``with phase("input_wait"): batch = next(batches)``
        the block waits for input.
    ``with phase("validation"): ...``
        everything in it is validation, except an ``input_wait`` inside.

    Regions nest: after the block, the previous phase continues; at the top, ``other`` (``start_up``
    before the first region). An unknown name is ``other``; each of the first eight in a process is
    warned about once. Exceptions pass through. An object may be used again. A generator should
    leave the block before it yields an item; otherwise the time its consumer spends counts as that
    phase, too.

    Args:
        name: One of ``start_up, compile, input_wait, host_to_device,
            train_step, device_sync, callbacks, checkpoint, validation,
            predict, between_epochs, other``.
    """

    __slots__ = ("_before", "_number")

    @passes_through
    def __init__(self, name: str) -> None:
        number = quietly(_number_named, name)
        self._number = modes.OTHER[0] if number is None else number
        self._before: list[tuple[int, int]] = []  # the writer's span, and the thread that entered

    @passes_through
    def __enter__(self) -> None:
        quietly(self._enter)

    @passes_through
    def __exit__(self, *_: object) -> None:
        quietly(self._leave)

    def _enter(self) -> None:
        ring = ring_so_far() or ring_for_phase(self._number)
        writer = None if ring is None else ring.writer_for_this_thread
        if ring is not None and writer is not None:
            span = writer.span
            self._before.append((span, ring.thread))
            ring.depth += 1
            writer.enter(self._number, _MODE_OF.get(self._number, span >> MODE_SHIFT))

    def _leave(self) -> None:
        ring = ring_so_far()
        if ring is None:
            return
        writer = ring.writer_for_this_thread
        if writer is not None and self._before:
            span, _thread = self._before.pop()
            ring.depth -= 1
            if ring.current_run is not None:
                number, mode = ring.region_closes(modes.phase_mode_of(span))
            elif ring.depth == 0:
                # Not the phase before: that may be over, if it was another task's region.
                number, mode = modes.OTHER
            else:
                number, mode = modes.phase_mode_of(span)
            writer.enter(number, mode, is_brief=True)
        elif ring.writer is not None and self._before and self._before[-1][1] == get_ident():
            # A run has begun on another thread, whose phases count now.
            span, _thread = self._before.pop()
            ring.depth -= 1
            if ring.current_run is not None:
                ring.region_closes(modes.phase_mode_of(span))


class TimedIterator(Proxy, Generic[T]):
    """An iterator whose every ``next()`` is a phase.

    For a loop over training batches, events in the ring mark its beginning and its last batch, so
    that a hung run differs from a finished one.
    """

    _is_in_loop = False
    _is_early = False  # the loop began before this process had a ring

    @passes_through
    def __init__(self, iterator: Iterator[T], name: str, source: object = None) -> None:
        self._original = iterator
        self._phase = phase(name)
        self._is_of_batches = name == TrainingPhase.INPUT_WAIT.value
        self._source = iterator if source is None else source

    @passes_through
    def __iter__(self) -> TimedIterator[T]:
        quietly(self._begin_loop)
        return self

    @passes_through
    def __next__(self) -> T:
        if self._is_early:
            quietly(self._begin_late)
        with self._phase:
            try:
                item: T = next(self._original)
            except StopIteration:
                quietly(self._end_loop)
                raise
            return item

    @passes_through
    def __del__(self) -> None:
        try:  # noqa: SIM105 (at interpreter exit even ``contextlib`` may be gone)
            quietly(self._end_loop)  # no further batch will be requested
        except Exception:  # noqa: BLE001
            pass

    def _begin_late(self) -> None:
        if ring_so_far() is not None:
            _report_loader(self._source)
            self._begin_loop()

    def _begin_loop(self) -> None:
        ring = ring_for_phase(self._phase._number)
        self._is_early = ring is None
        writer = None if ring is None else ring.writer_for_this_thread
        if (
            self._is_of_batches
            and writer is not None
            and writer.span >> MODE_SHIFT == modes.TRAIN_MODE
        ):
            self._is_in_loop = True
            writer.event(LOOP_BEGAN)

    def _end_loop(self) -> None:
        if self._is_in_loop:
            self._is_in_loop = False
            ring = ring_so_far()
            writer = None if ring is None else ring.writer_for_this_thread
            if writer is not None:
                writer.event(LOOP_ENDED)


class TimedIterable(Proxy, Generic[T]):
    """An iterable, to be iterated as often as the original."""

    @passes_through
    def __init__(self, iterable: Iterable[T], name: str) -> None:
        self._original = iterable
        self._name = name

    @passes_through
    def __iter__(self) -> TimedIterator[T]:
        quietly(_report_loader, self._original)  # it may have been made before the validation began
        with phase(self._name):  # a loader starts its workers here
            original = iter(self._original)
            iterator: TimedIterator[T] = TimedIterator(original, self._name, self._original)
            quietly(iterator._begin_loop)
            return iterator


class _Sized(Proxy):
    """Has the length of the original."""

    @passes_through
    def __len__(self) -> int:
        return len(self._original)


class TimedSizedIterator(TimedIterator[T], _Sized):
    """An iterator with a length, such as a loader that is its own iterator."""


class TimedCollection(TimedIterable[T], _Sized):
    """An iterable with a length, such as a loader."""


@overload
def timed(iterable: Collection[T], phase: str = ...) -> TimedCollection[T]: ...
@overload
def timed(iterable: Iterable[T], phase: str = ...) -> TimedIterator[T] | TimedIterable[T]: ...
@passes_through
def timed(
    iterable: Iterable[T], phase: str = TrainingPhase.INPUT_WAIT.value
) -> TimedIterator[T] | TimedIterable[T]:
    """Return the same items; getting each is a phase, by default ``input_wait``.

    ``for batch in timed(loader): ...``

    Args:
        iterable: A loader, a dataset, a generator. It keeps its length and
            its attributes, and can be iterated as often as before. The first
            one like torch's ``DataLoader``, or of your own code, also records
            how many workers it has and where that code is, so that advice can
            name them; so does the first one in a ``validation``.
        phase: The phase's name, as for ``phase()``.
    """
    quietly(_report_loader, iterable)
    is_sized = hasattr(iterable, "__len__")
    if hasattr(iterable, "__next__"):
        return (TimedSizedIterator if is_sized else TimedIterator)(iter(iterable), phase)
    return (TimedCollection if is_sized else TimedIterable)(iterable, phase)


@passes_through
def step(samples: int | None = None) -> None:
    """Count one training step. If nothing else was tagged, start-up ends with the first.

    A call with anything but a sample count is not counted; the first one in a process is warned
    about.

    Args:
        samples: Samples in its batch, where known.
    """
    quietly(_count_step, samples)


def _count_step(samples: int | None) -> None:
    ring = process_ring()
    writer = ring.writer_for_this_thread
    if writer is None:
        return
    try:
        count = 0 if samples is None else index(samples)
        is_count = 0 <= count <= _MAX_SAMPLES
    except Exception:  # noqa: BLE001 (whatever it is, it must not end a run)
        is_count = False
    if is_count:
        writer.step(1, count)
        if writer.span == START_UP and ring.depth == 0 and ring.current_run is None:
            writer.enter(*modes.OTHER)
    else:
        _warn_of_samples(
            f"gpumon does not count a step(samples=...): samples must be an integer from 0 to "
            f"{_MAX_SAMPLES}, not a value of type {type(samples).__name__}"
        )


def _report_loader(iterable: object) -> None:
    ring = ring_for_phase(modes.OTHER[0])
    writer = None if ring is None else ring.writer_for_this_thread
    if ring is None or writer is None:
        return
    ring.check_gpus()
    validates = writer.present[1] == modes.VALIDATION_MODE
    if has_facts(writer.facts.loader, validates=validates):
        return
    facts = loader_facts(iterable)
    if facts:
        report_loader(facts, validates=validates, by_trainer=False)


def _number_named(name: str) -> int:
    # Only text is looked up: another object's hash or comparison may raise.
    number = _NUMBER_NAMED.get(name) if isinstance(name, str) else None
    if number is not None:
        return number
    shown = repr(name[:60]) if isinstance(name, str) else f"of type {type(name).__name__}"
    _warn_of_phase(
        shown,
        f"gpumon knows no phase {shown} and counts its time as other; "
        f"the phases are {', '.join(_NUMBER_NAMED)}",
    )
    return modes.OTHER[0]

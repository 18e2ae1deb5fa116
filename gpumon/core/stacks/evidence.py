"""What stack samples show together: shares by cause, the most frequent places, the user's line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Final, NamedTuple, TypeAlias, TypeVar

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import ProcessStack, StackFrame
from gpumon.core.stacks.workers import WorkerSummary, WorkerTally

ENOUGH_SAMPLES: Final = 10
"""Fewer idle samples, or fewer that agree, show no share and promise no speed-up."""
_LEAST_BUSY_SAMPLES: Final = 3
_IN_IDLE_FROM: Final = 0.5
_IN_BUSY_UP_TO: Final = 0.1
_IN_OTHERS_UP_TO: Final = 0.9
_MOST_KEYS: Final = 512
"""Different places, functions and lines that are counted; later ones count as samples alone."""
_Z_OF_95_PERCENT: Final = 1.959964
_MODULE: Final = "<module>"

_Key = TypeVar("_Key")
_Function: TypeAlias = tuple[str, str]  # its name and path


class CauseShare(NamedTuple):
    """How many of some samples were in code of one cause.

    Attributes:
        cause: ``UNKNOWN``: no pattern knows the code.
        samples: How many.
        ratio: The part of the time that all stand for, 0 to 1.
        low: Lower end of its 95 % interval (Wilson).
        high: Upper end.
    """

    cause: IdleCause
    samples: int
    ratio: float
    low: float
    high: float


class PlaceCount(NamedTuple):
    """How many of some samples had their training thread at one place.

    Attributes:
        cause: Of this place; ``UNKNOWN``: no pattern knows it.
        what: Short words for it, such as ``"DataLoader.__next__"``.
        frame: The frame that was recognised; ``None``: none was.
        caller: The user's own frame that calls it; ``None``: unknown.
    """

    cause: IdleCause
    what: str
    frame: StackFrame | None
    caller: StackFrame | None
    samples: int = 0


class UserFunction(NamedTuple):
    """The user's own function that the GPU waits for.

    Attributes:
        frame: It, with the line where it mostly was.
        called_from: The line that calls it; ``None``: unknown.
        idle_samples: In how many of the idle samples it stood.
        busy_samples: In how many of the busy ones.
        is_compared: Whether there were enough busy samples to say that it is not there while the
            GPU works.
    """

    frame: StackFrame
    called_from: StackFrame | None
    idle_samples: int
    busy_samples: int
    is_compared: bool


class StackFinding(NamedTuple):
    """What the samples of one process show.

    Attributes:
        idle_samples: Samples taken while the GPU was idle; so are ``busy_samples``.
        mixed_samples: Taken while it did both: no evidence.
        unobserved_samples: Taken at a time that no window of the driver covers.
        failed_samples: How many could not be read.
        failure: Why the last of these could not; ``None``: all could.
        causes: Of the idle samples, the most frequent first.
        places: Of the idle samples, likewise.
        function: ``None``: no function of the user's own stands out.
        inside: The user's call that the library's call of the main cause mostly works on, such
            as a dataset's ``__getitem__``; ``None``: unknown.
        workers: The processes that work for it, in idle samples; ``None``: there are none.
        at_random: Of all samples, whatever the GPU did, likewise.
        random_samples: How many these were; unobserved ones are none of them.
        owner_uid: User of the process; ``None``: unknown.
    """

    idle_samples: int = 0
    busy_samples: int = 0
    mixed_samples: int = 0
    unobserved_samples: int = 0
    failed_samples: int = 0
    failure: str | None = None
    causes: tuple[CauseShare, ...] = ()
    places: tuple[PlaceCount, ...] = ()
    function: UserFunction | None = None
    inside: StackFrame | None = None
    workers: WorkerSummary | None = None
    at_random: tuple[CauseShare, ...] = ()
    random_places: tuple[PlaceCount, ...] = ()
    random_samples: int = 0
    owner_uid: int | None = None

    @property
    def is_enough(self) -> bool:
        """Whether they suffice for a share."""
        return self.idle_samples >= ENOUGH_SAMPLES

    @property
    def main(self) -> CauseShare | None:
        """The most frequent cause of the idle samples."""
        return self.causes[0] if self.causes else None


def wilson_interval(count: float, total: float) -> tuple[float, float]:
    """The 95 % interval of a share, after ``count`` of ``total`` samples (Wilson).

    Of samples that do not all count the same, ``total`` is how many equal ones show as much.

    >>> [round(end, 2) for end in wilson_interval(38, 41)], wilson_interval(0, 0)
    ([0.81, 0.97], (0.0, 1.0))
    """
    if not total:
        return 0.0, 1.0
    ratio, square = count / total, _Z_OF_95_PERCENT**2
    middle = ratio + square / (2 * total)
    half = _Z_OF_95_PERCENT * sqrt(ratio * (1 - ratio) / total + square / (4 * total**2))
    scale = 1 + square / total
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


@dataclass(slots=True)
class _FunctionTally:
    samples: int = 0
    depths: int = 0
    lines: Counter[int | None] = field(default_factory=Counter)
    calls: Counter[StackFrame | None] = field(default_factory=Counter)

    @property
    def depth(self) -> float:
        """Its mean place in the user's frames; 0 is the outermost."""
        return self.depths / self.samples


@dataclass(slots=True)
class _Counted:
    samples: int = 0
    weight: float = 0.0

    def add(self, weight: float) -> None:
        self.samples += 1
        self.weight += weight


class _Tally:
    """Counts of the samples of one kind, and the time that they stand for."""

    def __init__(self) -> None:
        self.samples = 0
        self._weight = self._squares = 0.0
        self._causes: dict[IdleCause, _Counted] = {}
        self._places: dict[PlaceCount, _Counted] = {}
        self._inside: Counter[tuple[IdleCause, StackFrame]] = Counter()
        self.functions: dict[_Function, _FunctionTally] = {}

    def add(self, place: Place, weight: float) -> None:
        self.samples += 1
        self._weight += weight
        self._squares += weight * weight
        cause = place.cause or IdleCause.UNKNOWN
        self._causes.setdefault(cause, _Counted()).add(weight)
        frame = None if place.frame is None else place.frame._replace(line=None)
        key = PlaceCount(cause, place.what, frame, place.caller)
        if key in self._places or len(self._places) < _MOST_KEYS:
            self._places.setdefault(key, _Counted()).add(weight)
        if place.inside is not None:
            _count(self._inside, (cause, place.inside))
        self._add_functions(place.user_frames)

    def _add_functions(self, frames: Sequence[StackFrame]) -> None:
        seen: set[_Function] = set()
        for depth, frame in enumerate(frames):
            key = frame.function, frame.path
            if frame.function == _MODULE or key in seen:
                continue
            seen.add(key)
            if key not in self.functions and len(self.functions) >= _MOST_KEYS:
                continue
            tally = self.functions.setdefault(key, _FunctionTally())
            tally.samples += 1
            tally.depths += depth
            _count(tally.lines, frame.line)
            _count(tally.calls, frames[depth - 1] if depth else None)

    def causes(self) -> tuple[CauseShare, ...]:
        return tuple(self._share(cause, one) for cause, one in _heaviest_first(self._causes))

    def _share(self, cause: IdleCause, one: _Counted) -> CauseShare:
        is_all = one.samples == self.samples
        ratio = 1.0 if is_all else one.weight / self._weight
        total = self._weight**2 / self._squares
        return CauseShare(cause, one.samples, ratio, *wilson_interval(ratio * total, total))

    def inside(self) -> StackFrame | None:
        cause = next((share.cause for share in self.causes()), None)
        frames = (frame for (of, frame), _ in self._inside.most_common() if of is cause)
        return next(frames, None)

    def main_place(self) -> PlaceCount | None:
        return next(iter(self.places()), None)

    def places(self) -> tuple[PlaceCount, ...]:
        return tuple(
            place._replace(samples=one.samples) for place, one in _heaviest_first(self._places)
        )


def _heaviest_first(counts: Mapping[_Key, _Counted]) -> list[tuple[_Key, _Counted]]:
    return sorted(counts.items(), key=lambda counted: -counted[1].weight)


def _count(counter: Counter[_Key], key: _Key) -> None:
    if key in counter or len(counter) < _MOST_KEYS:
        counter[key] += 1


class StackEvidence:
    """Counts stack samples; its memory does not grow with their number."""

    def __init__(self) -> None:
        self._of_kind = {SampleKind.IDLE: _Tally(), SampleKind.BUSY: _Tally()}
        self._all, self._workers = _Tally(), WorkerTally()
        self._mixed = self._unobserved = self._failed = 0
        self._failure: str | None = None

    def add(
        self,
        kind: SampleKind,
        place: Place,
        workers: Sequence[ProcessStack] = (),
        *,
        stands_for: float = 1.0,
        weight: float | None = None,
    ) -> None:
        """Add where the training thread and the processes that work for it were in one sample.

        Args:
            kind: What the GPU did meanwhile.
            place: Where the training thread was.
            workers: The processes that work for it.
            stands_for: The time between two samples then, in any unit.
            weight: The idle time that it stands for, in the same unit; ``None``: likewise.
        """
        if kind is SampleKind.IDLE:
            self._workers.add(workers)
        if kind is not SampleKind.UNOBSERVED:
            self._all.add(place, stands_for)
        if kind in self._of_kind:
            self._of_kind[kind].add(place, stands_for if weight is None else weight)
        elif kind is SampleKind.MIXED:
            self._mixed += 1
        else:
            self._unobserved += 1

    def add_failure(self, why: str) -> None:
        """Count a sample that could not be read."""
        self._failed += 1
        self._failure = why

    @property
    def idle_samples(self) -> int:
        return self._of_kind[SampleKind.IDLE].samples

    @property
    def failed_samples(self) -> int:
        return self._failed

    @property
    def main_place(self) -> PlaceCount | None:
        """The most frequent place of the idle samples so far."""
        return self._of_kind[SampleKind.IDLE].main_place()

    def finding(self) -> StackFinding:
        """What they show so far."""
        idle, busy = self._of_kind[SampleKind.IDLE], self._of_kind[SampleKind.BUSY]
        return StackFinding(
            idle_samples=idle.samples,
            busy_samples=busy.samples,
            mixed_samples=self._mixed,
            unobserved_samples=self._unobserved,
            failed_samples=self._failed,
            failure=self._failure,
            causes=idle.causes(),
            places=idle.places(),
            function=_function_of(idle, busy, self._all),
            inside=idle.inside(),
            workers=self._workers.summary(),
            at_random=self._all.causes(),
            random_places=self._all.places(),
            random_samples=self._all.samples,
        )


def _function_of(idle: _Tally, busy: _Tally, every: _Tally) -> UserFunction | None:
    """The outermost function of the user's own that is there while the GPU idles, and only then.

    Without enough busy samples: the outermost that is not in nearly all other samples, too; without
    any such function, the innermost that mostly is there.
    """
    common = {
        key: tally
        for key, tally in idle.functions.items()
        if tally.samples > _IN_IDLE_FROM * idle.samples
    }
    is_compared = busy.samples >= _LEAST_BUSY_SAMPLES
    if is_compared:
        limit = _IN_BUSY_UP_TO * busy.samples
        special = [key for key in common if _samples_in(busy, key) < limit]
    else:
        others = every.samples - idle.samples
        special = [
            key
            for key, tally in common.items()
            if others >= _LEAST_BUSY_SAMPLES
            and _samples_in(every, key) - tally.samples < _IN_OTHERS_UP_TO * others
        ]
    if special:
        found = min(special, key=lambda key: common[key].depth)
    elif common and not is_compared:
        found = max(common, key=lambda key: common[key].depth)
    else:
        return None
    (function, path), tally = found, common[found]
    return UserFunction(
        frame=StackFrame(function, path, tally.lines.most_common(1)[0][0]),
        called_from=tally.calls.most_common(1)[0][0],
        idle_samples=tally.samples,
        busy_samples=_samples_in(busy, found),
        is_compared=is_compared,
    )


def _samples_in(tally: _Tally, function: _Function) -> int:
    return tally.functions[function].samples if function in tally.functions else 0

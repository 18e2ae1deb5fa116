"""What somebody does in the middle of a training, when, and what the ring says of it then."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from gpumon.core.ring_format.events import RingKind
from tests.loops.builders_loops import RingContents, own_ring, present

PhaseMode = tuple[str, int]
"""A phase and its mode."""


class Act:
    """Does something at the calls that are told, and notes when; not while it does it."""

    def __init__(self, does: Callable[[], object], *at_calls: int) -> None:
        self._does, self._at_calls = does, at_calls
        self._calls, self._is_acting = 0, False
        self.spans_ns: list[tuple[int, int]] = []

    def __call__(self, *_: object, **__: object) -> None:
        if self._is_acting:
            return
        self._calls += 1
        if self._calls not in self._at_calls:
            return
        self._is_acting, began_ns = True, time.monotonic_ns()
        try:
            self._does()
        finally:
            self._is_acting = False
            self.spans_ns.append((began_ns, time.monotonic_ns()))


class Recorded(NamedTuple):
    """What a ring says of a training, and of what was done in its middle.

    Attributes:
        steps: Steps.
        samples: Samples.
        present: Where the process is afterwards.
        inside: Where it was while the act lasted.
        after: Where it was when that was over.
        outside: Where it was otherwise, in order; without what lasted over the end of an act.
    """

    steps: int
    samples: int
    present: PhaseMode
    inside: set[PhaseMode]
    after: set[PhaseMode]
    outside: list[PhaseMode]


def recorded(act: Act, after: set[PhaseMode]) -> Recorded:
    """What the ring of this process says of the training in which that was done."""
    contents = RingContents()
    inside: set[PhaseMode] = set()
    outside: list[PhaseMode] = []
    entered = [e for e in contents.records if e.kind is RingKind.ENTER]
    for event, ends_ns in zip(
        entered, [e.at_ns for e in entered[1:]] + [contents.at_ns], strict=True
    ):
        place = (event.phase.value, event.value)
        if any(began < ends_ns and event.at_ns < ended for began, ended in act.spans_ns):
            inside.add(place)
        if not any(began <= event.at_ns < ended for began, ended in act.spans_ns):
            outside.append(place)
    outside = [place for place, _ in groupby(outside)]
    return Recorded(
        contents.steps, contents.samples, (contents.present, contents.mode), inside, after, outside
    )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """A ring for one training of several in a test."""
    folder.mkdir()
    with own_ring(folder):
        yield


def before_each(does: Callable[[], object], method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, but for something that is done before each call."""

    def both(*args: Any, **named: Any) -> Any:
        does()
        return method(*args, **named)

    return both


class Seen(NamedTuple):
    """What came of a training, of what was done aside, and how many steps the trainer made."""

    results: tuple[Any, ...]
    recorded: Recorded | None
    steps: int


class Outer(ABC):
    """The training in whose middle something is done.

    Attributes:
        at: Where something is done, and at which calls.
        hook: Its tagger; ``None``: it is not tagged.
        trainer: Its trainer.
        others: What was computed aside.
    """

    at: ClassVar[dict[str, tuple[int, ...]]]
    _builders: ClassVar[str]

    def __init__(self, folder: Path, hook: Any) -> None:
        self.b: Any = import_module(self._builders)
        self.folder, self.hook = folder, hook
        self.trainer: Any = None
        self.others: list[Any] = []

    def taggers(self, whose: str) -> list[Any]:
        """Of another trainer: that of this training, one of its own, or none."""
        if self.hook is None or whose == "no":
            return []
        return [self.hook if whose == "the same" else self.b.tagger()]

    @abstractmethod
    def run(self, where: str, act: Act, *more: Any) -> tuple[tuple[Any, ...], int]:
        """Train, with that act there, and more callbacks; what came of it, and its steps."""


Does = Callable[[Any], object]
"""What is done to the outer training."""


def train(kind: type[Outer], folder: Path, does: Does, where: str, hook: Any, *more: Any) -> Seen:
    """Train, and do something in the middle of it."""
    with alone(folder):
        outer, after = kind(folder, hook), set()

        def acts() -> None:
            does(outer)
            after.update([present()] if hook is not None else [])

        act = Act(acts, *kind.at[where])
        results, steps = outer.run(where, act, *more)
        assert len(act.spans_ns) == len(kind.at[where])
        seen = None if hook is None else recorded(act, after)
        return Seen((*results, outer.others, steps), seen, steps)


def train_bare_and_tagged(
    kind: type[Outer], folder: Path, does: Does, where: str
) -> tuple[Seen, Recorded]:
    """The same without and with a tagger: the results are the same, and this is what was seen."""
    tagger = import_module(kind._builders).tagger
    bare = train(kind, folder / "bare", does, where, None)
    tagged = train(kind, folder / "tagged", does, where, tagger())
    assert tagged.results == bare.results
    assert tagged.recorded is not None
    return tagged, tagged.recorded


def undisturbed(kind: type[Outer], folder: Path, where: str) -> Recorded:
    """What a ring says where nothing is done in the middle."""
    tagger = import_module(kind._builders).tagger
    found = train(kind, folder / "undisturbed", lambda outer: None, where, tagger()).recorded
    assert found is not None
    return found

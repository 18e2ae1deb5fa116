"""What somebody does in the middle of a training, when, and what the ring says of it then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from gpumon.core.ring.events import RingKind
from tests.loops.builders_loops import RingSays, own_ring

Place = tuple[str, int]
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


class Told(NamedTuple):
    """What a ring says of a training, and of what was done in its middle.

    Attributes:
        steps: Steps.
        samples: Samples.
        present: Where the process is afterwards.
        inside: Where it was while the act lasted.
        outside: Where it was otherwise, in order; without what lasted over the end of an act.
    """

    steps: int
    samples: int
    present: Place
    inside: set[Place]
    outside: list[Place]


def told(act: Act) -> Told:
    """What the ring of this process says of the training in which that was done."""
    says = RingSays()
    inside: set[Place] = set()
    outside: list[Place] = []
    entered = [e for e in says.records if e.kind is RingKind.ENTER]
    for event, ends_ns in zip(entered, [e.at_ns for e in entered[1:]] + [says.at_ns], strict=True):
        place = (event.phase.value, event.value)
        if any(began < ends_ns and event.at_ns < ended for began, ended in act.spans_ns):
            inside.add(place)
        if not any(began <= event.at_ns < ended for began, ended in act.spans_ns):
            outside.append(place)
    outside = [place for place, _ in groupby(outside)]
    return Told(says.steps, says.samples, (says.present, says.mode), inside, outside)


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

"""The contents of a ring, and sleeps that time themselves below the hooks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpumon.core.phase import PHASES
from gpumon.core.ring_format.events import RingKind, RunFacts
from gpumon.core.ring_format.format import RingTotals
from tests.ring_contents import records_in, totals_in
from tests.waiting import held_up_ns
from trainer_hooks.ring import process_ring
from trainer_hooks.ring.ring_writer import RingWriter


@contextmanager
def own_ring(folder: Path) -> Iterator[None]:
    """As in a new process: no ring yet, and a folder for it."""
    before = os.environ.get("GPUMON_RUNTIME_DIR"), process_ring._Slot.ring
    os.environ["GPUMON_RUNTIME_DIR"] = str(folder)
    process_ring._Slot.ring = None
    try:
        yield
    finally:
        process_ring._Slot.ring = before[1]
        if before[0] is None:
            del os.environ["GPUMON_RUNTIME_DIR"]
        else:
            os.environ["GPUMON_RUNTIME_DIR"] = before[0]


class Sleeps:
    """Sleeps, and times that and the block around which it is."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.spans_ns: list[tuple[int, int]] = []
        self._held_up_before_ns = held_up_ns()

    @property
    def held_up_ns(self) -> int:
        """How long this thread had no processor since: on a busy machine, not because of a hook."""
        return held_up_ns() - self._held_up_before_ns

    def __call__(self) -> None:
        with self.around():
            pass

    @contextmanager
    def around(self) -> Iterator[None]:
        """Sleep, then run the block; both count."""
        began_ns = time.monotonic_ns()
        time.sleep(self.seconds)
        try:
            yield
        finally:
            self.spans_ns.append((began_ns, time.monotonic_ns()))

    @property
    def times(self) -> int:
        return len(self.spans_ns)

    @property
    def spent_ns(self) -> int:
        return sum(end - start for start, end in self.spans_ns)

    def spent_within_ns(self, others: Sleeps) -> int:
        """How much of this was within the spans of the others."""
        return sum(
            end - start
            for start, end in self.spans_ns
            if any(began <= start and end <= ended for began, ended in others.spans_ns)
        )


class Waits:
    """Where a training run sleeps, and for how long, in seconds.

    Attributes:
        validation: Around each validation.
        optimizer: Around the optimizer, which may call the step itself.
    """

    def __init__(
        self,
        *,
        fetch: float = 0.0,
        step: float = 0.0,
        validation_fetch: float = 0.0,
        validation_step: float = 0.0,
        checkpoint: float = 0.0,
        callback: float = 0.0,
    ) -> None:
        self.fetch, self.step = Sleeps(fetch), Sleeps(step)
        self.validation_fetch = Sleeps(validation_fetch)
        self.validation_step = Sleeps(validation_step)
        self.checkpoint, self.callback = Sleeps(checkpoint), Sleeps(callback)
        self.validation, self.optimizer = Sleeps(), Sleeps()

    @property
    def input_wait_ns(self) -> int:
        return self.fetch.spent_ns + self.validation_fetch.spent_ns

    @property
    def fetches(self) -> int:
        return self.fetch.times + self.validation_fetch.times

    def in_phase_ns(self, phase: str) -> int:
        """How long the run really was in a phase."""
        if phase == "train_step":
            within_ns = self.step.spent_within_ns(self.optimizer)
            return self.optimizer.spent_ns + self.step.spent_ns - within_ns
        if phase == "validation":
            inside = (self.validation_fetch, self.checkpoint)
            return self.validation.spent_ns - sum(
                sleeps.spent_within_ns(self.validation) for sleeps in inside
            )
        return {"callbacks": self.callback, "checkpoint": self.checkpoint}[phase].spent_ns


class RingContents:
    """The ring of this process, now."""

    def __init__(self) -> None:
        ring_writer = writer()
        raw = ring_writer._memory.path.read_bytes()
        totals = totals_in(raw)
        self.at_ns, self.held_up_ns = time.monotonic_ns(), held_up_ns()
        self.phase_ns = {phase.value: ns for phase, ns in zip(PHASES, totals.phase_ns, strict=True)}
        self.present = PHASES[ring_writer.present[0]].value
        self.mode = ring_writer.present[1]
        self.epoch = totals.epoch
        self.facts: RunFacts = ring_writer.facts
        self.records = records_in(raw)
        self.steps = max(totals.steps, self._newest(RingKind.STEP))
        self.samples = max(totals.samples, self._newest(RingKind.SAMPLES))
        self._add_newer_than_the_totals(totals)

    def _newest(self, kind: RingKind) -> int:
        return max((e.value for e in self.records if e.kind is kind), default=0)

    def _add_newer_than_the_totals(self, totals: RingTotals) -> None:
        """The totals lag by some milliseconds; the records continue."""
        phase, since_ns = totals.present, totals.since_ns
        for event in self.records:
            if event.kind is RingKind.ENTER and event.at_ns > totals.since_ns:
                self.phase_ns[phase.value] += event.at_ns - since_ns
                phase, since_ns = event.phase, event.at_ns
        self.phase_ns[phase.value] += self.at_ns - since_ns

    def phases(self) -> list[tuple[str, int]]:
        """Every phase entered, in order, with its mode."""
        return [(e.phase.value, e.value) for e in self.records if e.kind is RingKind.ENTER]


class Stretch:
    """A part of a run, by the clock and by its ring.

    Attributes:
        wall_ns: By the clock.
        phase_ns: By the ring: nanoseconds in each phase.
        held_up_ns: How long its thread had no processor on a busy machine.
        after: The ring at its end.
    """

    def __init__(self, before: RingContents, after: RingContents) -> None:
        self.wall_ns = after.at_ns - before.at_ns
        self.phase_ns = {name: ns - before.phase_ns[name] for name, ns in after.phase_ns.items()}
        self.held_up_ns = after.held_up_ns - before.held_up_ns
        self.after = after

    def share(self, phase: str) -> float:
        """The part of the wall time in this phase, 0 to 1."""
        return self.phase_ns[phase] / self.wall_ns


@contextmanager
def stretch() -> Iterator[list[Stretch]]:
    """Measure the block; the list holds one ``Stretch`` when it is over."""
    process_ring.process_ring()
    before = RingContents()
    found: list[Stretch] = []
    try:
        yield found
    finally:
        found.append(Stretch(before, RingContents()))


def present() -> tuple[str, int]:
    """The phase under way, and its mode."""
    contents = RingContents()
    return contents.present, contents.mode


class WrongInTheMiddleError(OSError):
    """Something goes wrong in the middle."""


def raise_error(*_: object, **__: object) -> Any:
    raise WrongInTheMiddleError


def writer() -> RingWriter:
    """The ring writer of this process."""
    found = process_ring.process_ring().writer
    assert found is not None
    return found


def finds_wait(seen: Stretch, true_ns: int, *, steps: int) -> bool:
    """Whether a wait for input was found: within 10 % or 1 ms a step, whichever is larger.

    And within what the machine itself took: a thread may be held up between a fetch and its hook.
    """
    error_ns = seen.phase_ns["input_wait"] - true_ns
    return abs(error_ns) <= max(0.1 * true_ns, steps * 1_000_000) + seen.held_up_ns

"""Which run says what a process does: runs inside runs, and inside a user's regions."""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Protocol

from trainer_hooks.ring import places as at


class UnderWay(Protocol):
    """A tagged run."""

    def goes_on(self) -> bool:
        """Whether it is still under way: of one that raised, nobody may have told."""
        ...


class NestedRun:
    """One tagged run, until it is over and all regions that were opened in it are closed.

    Attributes:
        outer: The run it interrupts; ``None``: the user's own loop.
        before: What was under way as it began, or as the region around it closed.
        depth: Regions of the user's own that are open around it.
        thread_before: The thread whose phases counted until then.
        tid_before: Its id as Linux has it; ``None``: unknown.
        is_over: Whether the run has ended.
    """

    __slots__ = (
        "_is_in_a_run", "_is_on_its_thread", "_run", "before", "depth", "is_over", "outer",
        "thread_before", "tid_before",
    )  # fmt: skip

    def __init__(
        self,
        run: UnderWay,
        outer: NestedRun | None,
        before: at.Place,
        *,
        depth: int,
        thread_before: int,
        tid_before: int | None,
    ) -> None:
        """It begins, on the calling thread; ``run`` is not kept alive."""
        self.outer, self.before, self.depth = outer, before, depth
        self.thread_before, self.tid_before = thread_before, tid_before
        self.is_over = False
        self._run = weakref.ref(run)
        self._is_on_its_thread = thread_before == get_ident()
        self._is_in_a_run = outer is not None and self._is_on_its_thread and outer.goes_on()

    def goes_on(self) -> bool:
        """Whether its run is still under way."""
        run = self._run()
        return run is not None and run.goes_on()

    def phase_afterwards(self) -> at.Place:
        """What is under way when it is over: what was before, if that is."""
        nested, outer = self, self.outer  # no recursion: errors may keep any number of runs
        while True:
            if nested._is_on_its_thread and nested.depth > (0 if outer is None else outer.depth):
                return nested.before
            if outer is None:
                return at.OTHER
            if not outer.is_over:
                if nested._is_in_a_run:
                    return nested.before
                if not nested._is_on_its_thread:
                    return at.OTHER
            nested, outer = outer, outer.outer

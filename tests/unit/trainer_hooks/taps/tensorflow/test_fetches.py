"""Wrapping the fetches of a class, each thread's own; and the accounts of a fused step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import code_of_fork
from trainer_hooks.taps.tensorflow.fetches import (
    SPACING_NS,
    Accounts,
    Around,
    Fetch,
    FetchPatch,
    Totals,
)

PATIENCE_S = 10.0


class Batches:
    """As TensorFlow's: three ways to fetch, one of them by another."""

    def __init__(self) -> None:
        self._batches = iter(range(1_000))

    def get_next(self) -> int:
        return next(self._batches)

    def get_next_as_optional(self) -> int:
        return next(self._batches)

    def __next__(self) -> int:
        return self.get_next()


FETCHES = ("get_next", "get_next_as_optional", "__next__")


class World:
    """A class that no other test has touched, its patch, and the calls that saw a fetch."""

    def __init__(self) -> None:
        self.kind: type[Any] = type("Batches", (Batches,), dict(methods_of(Batches)))
        self.whole = methods_of(self.kind)
        self.patch = FetchPatch(self.kind)
        self.calls: list[str] = []

    @property
    def methods(self) -> dict[str, Any]:
        """Those that the class has now."""
        return methods_of(self.kind)

    def noting(self, name: str) -> Around:
        def around(fetch: Fetch) -> Any:
            self.calls.append(name)
            return fetch()

        return around

    def call(self, function: Callable[[Any], Any], name: str = "mine") -> Any:
        return self.patch.call(function, self.kind(), self.noting(name))


@pytest.fixture
def world() -> World:
    return World()


def methods_of(kind: type[Any]) -> dict[str, Any]:
    return {name: vars(kind)[name] for name in FETCHES}


def fail(_: object) -> None:
    raise OSError("disk")


class InAThread:
    """A call under way in a thread, which continues step by step."""

    def __init__(self, world: World, name: str = "mine") -> None:
        self._steps = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self._is_over = False
        batches = world.kind()

        def fetch_step_by_step(_: object) -> None:
            self._done.release()
            while self._may_continue() and not self._is_over:
                next(batches)
                self._done.release()

        self._thread = threading.Thread(target=world.call, args=(fetch_step_by_step, name))
        self._thread.start()
        assert self._done.acquire(timeout=PATIENCE_S)

    def _may_continue(self) -> bool:
        return self._steps.acquire(timeout=PATIENCE_S)

    def fetch(self) -> None:
        self._steps.release()
        assert self._done.acquire(timeout=PATIENCE_S)

    def end(self) -> None:
        self._is_over = True
        self._steps.release()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class TestACall:
    def test_sees_its_fetch_once_and_leaves_the_class_as_it_was(self, world: World) -> None:
        assert world.call(next) == 0
        assert world.calls == ["mine"]
        with pytest.raises(OSError, match="disk"):
            world.call(fail)

        assert world.methods == world.whole

    def test_within_a_call_receives_what_the_outer_one_does_not(self, world: World) -> None:
        def outer(batches: Any) -> None:
            next(batches)
            world.patch.call(next, batches, world.noting("inner"))
            next(batches)

        world.call(outer, "outer")

        assert world.calls == ["outer", "inner", "outer"]


class TestCallsOfSeveralThreads:
    @pytest.mark.parametrize("first_to_end", [0, 1])
    def test_receive_their_own_fetches_until_each_is_over(
        self, world: World, first_to_end: int
    ) -> None:
        calls = [InAThread(world, "a"), InAThread(world, "b")]
        rest = calls[1 - first_to_end]

        calls[0].fetch()
        calls[1].fetch()
        calls[first_to_end].end()
        rest.fetch()
        next(world.kind())  # not seen by any call
        rest.end()

        assert world.calls == ["a", "b", "ab"[1 - first_to_end]]
        assert world.methods == world.whole

    def test_leave_nothing_however_they_overlap(self, world: World) -> None:
        def fetch_many() -> None:
            for _ in range(300):
                world.call(next)

        threads = [threading.Thread(target=fetch_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)

        assert world.methods == world.whole
        assert len(world.calls) == 4 * 300


class TestThePatchOfOtherCode:
    def over(self, kind: type[Any], seen: list[str]) -> Callable[..., Any]:
        below = vars(kind)["__next__"]

        def theirs(batches: Any) -> Any:
            seen.append("theirs")
            return below(batches)

        kind.__next__ = theirs
        return theirs

    def test_foreign_patch_over_ours_stays_and_works(self, world: World) -> None:
        seen: list[str] = []
        call = InAThread(world)
        theirs = self.over(world.kind, seen)

        call.fetch()
        call.end()
        assert world.methods == {**world.whole, "__next__": theirs}
        assert next(world.kind()) == 0
        assert (world.calls, seen) == (["mine"], ["theirs", "theirs"])

    def test_foreign_patch_that_restores_ours_is_cleaned_up_by_the_next_call(
        self, world: World
    ) -> None:
        call = InAThread(world)
        below = vars(world.kind)["__next__"]
        self.over(world.kind, [])
        call.end()
        world.kind.__next__ = below

        world.call(next)

        assert world.calls == ["mine"]
        assert world.methods == world.whole


class TestAForkedChild:
    def test_has_the_class_complete_and_no_lock_that_its_parent_held(self, world: World) -> None:
        patch, call = world.patch, InAThread(world)

        def forget() -> bool:
            patch.forget()
            return world.methods == world.whole and not patch._lock.locked()

        with patch._lock:
            code = code_of_fork(forget)

        assert code == 0
        call.end()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before


MS = 1_000_000


class Graph:
    """What a graph sums up; ``readings`` counts how often its accounts looked."""

    def __init__(self, *, wait_ns: int, batches: int = 4, took_ns: int) -> None:
        self.wait_ns, self._batches, self._took_ns = wait_ns, batches, took_ns
        self._executions = self._waited_ns = 0
        self.now_ns = 1_000 * MS
        self.readings = 0
        self.accounts = Accounts(self.read, 4)

    def read(self) -> Totals:
        self.readings += 1
        done = self._executions
        return Totals(self._waited_ns / 1e9, done * self._batches, done * self._batches * 16)

    def execute(self) -> tuple[int, int, int]:
        self._executions += 1
        self._waited_ns += self.wait_ns
        self.now_ns += self._took_ns
        return self.accounts.executed(self._took_ns, self.now_ns)

    def pass_unaccounted(self) -> None:
        """An execution that had no batch: it waited, and that is all."""
        self._waited_ns += self.wait_ns


class TestAnExecution:
    def test_long_execution_is_recorded_exactly(self) -> None:
        graph = Graph(wait_ns=30 * MS, took_ns=40 * MS)

        assert graph.execute() == (30 * MS, 4, 64)

    def test_is_never_recorded_to_have_waited_longer_than_it_took(self) -> None:
        graph = Graph(wait_ns=50 * MS, took_ns=40 * MS)

        assert graph.execute()[0] == 40 * MS


class TestShortExecutions:
    def test_share_a_reading(self) -> None:
        graph = Graph(wait_ns=MS // 2, took_ns=MS)

        for _ in range(100):
            graph.execute()

        assert graph.readings - 1 == 100 * MS // SPACING_NS

    def test_are_recorded_to_have_waited_alike(self) -> None:
        graph = Graph(wait_ns=MS // 2, took_ns=MS)

        recorded = [graph.execute()[0] for _ in range(40)]

        assert set(recorded[10:]) == {MS // 2}

    def test_count_each_batch_once(self) -> None:
        graph = Graph(wait_ns=0, batches=3, took_ns=MS)

        steps = [graph.execute()[1] for _ in range(101)]

        assert min(steps) >= 0
        assert 303 <= sum(steps) <= 303 + SPACING_NS // MS


class TestAnExecutionThatFoundNoBatch:
    def test_keeps_its_wait_to_itself(self) -> None:
        graph = Graph(wait_ns=30 * MS, batches=0, took_ns=30 * MS)

        graph.pass_unaccounted()
        assert graph.accounts.found_nothing(40 * MS) == 30 * MS

        graph.wait_ns = 2 * MS
        assert [graph.execute()[0] for _ in range(5)] == [2 * MS] * 5

    def test_leaves_what_those_before_it_waited(self) -> None:
        graph = Graph(wait_ns=MS // 2, took_ns=MS)
        recorded_ns = sum(graph.execute()[0] for _ in range(13))

        graph.wait_ns = 400 * MS
        graph.pass_unaccounted()
        assert graph.accounts.found_nothing(400 * MS) == 400 * MS
        graph.wait_ns = 0
        recorded_ns += sum(graph.execute()[0] for _ in range(40))

        assert recorded_ns == 13 * MS // 2


class TestLaws:
    @given(st.integers(0, 20 * MS), st.integers(MS // 10, 20 * MS), st.integers(1, 60))
    def test_what_is_recorded_lags_by_little_and_is_never_more_than_was(
        self, wait_ns: int, took_ns: int, executions: int
    ) -> None:
        wait_ns = min(wait_ns, took_ns)
        graph = Graph(wait_ns=wait_ns, took_ns=took_ns)

        recorded_ns = sum(graph.execute()[0] for _ in range(executions))

        assert recorded_ns <= executions * wait_ns + executions
        assert recorded_ns >= executions * wait_ns - 2 * (SPACING_NS + took_ns)

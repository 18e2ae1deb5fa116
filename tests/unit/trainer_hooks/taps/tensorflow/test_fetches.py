"""Specification of going around a class's fetches: each thread hears its own, and none stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processes import code_of_fork
from trainer_hooks.taps.tensorflow.fetches import Around, Fetch, FetchPatch

PATIENCE_S = 10.0


class Batches:
    """As TensorFlow's: three ways to fetch, of which one calls another."""

    def __init__(self) -> None:
        self._batches = iter(range(1_000))

    def get_next(self) -> int:
        return next(self._batches)

    def get_next_as_optional(self) -> int:
        return next(self._batches)

    def __next__(self) -> int:
        return self.get_next()


@pytest.fixture
def kind() -> type[Any]:
    """A class that no other test has touched."""
    return type("Batches", (Batches,), {name: vars(Batches)[name] for name in FETCHES})


FETCHES = ("get_next", "get_next_as_optional", "__next__")


def noting(heard: list[str], name: str) -> Around:
    def around(fetch: Fetch) -> Any:
        heard.append(name)
        return fetch()

    return around


def fetch_once(batches: Any) -> Any:
    return next(batches)


def methods_of(kind: type[Any]) -> dict[str, Any]:
    return {name: vars(kind)[name] for name in FETCHES}


class InAThread:
    """A call under way in a thread, that goes on when it is told to."""

    def __init__(self, patch: FetchPatch, kind: type[Any], around: Around) -> None:
        self._steps = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self._is_over = False
        batches = kind()

        def fetch_when_told(_: object) -> None:
            self._done.release()
            while self._told() and not self._is_over:
                next(batches)
                self._done.release()

        self._thread = threading.Thread(target=lambda: patch.call(fetch_when_told, None, around))
        self._thread.start()
        assert self._done.acquire(timeout=PATIENCE_S)

    def _told(self) -> bool:
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
    def test_hears_each_of_its_fetches_once(self, kind: type[Any]) -> None:
        heard: list[str] = []

        fetched = FetchPatch(kind).call(fetch_once, kind(), noting(heard, "mine"))

        assert (fetched, heard) == (0, ["mine"])

    def test_leaves_the_class_as_it_was(self, kind: type[Any]) -> None:
        whole, patch = methods_of(kind), FetchPatch(kind)

        def fail(_: object) -> None:
            raise OSError("disk")

        patch.call(fetch_once, kind(), noting([], "mine"))
        with pytest.raises(OSError, match="disk"):
            patch.call(fail, kind(), noting([], "mine"))

        assert methods_of(kind) == whole

    def test_within_a_call_hears_what_the_outer_one_does_not(self, kind: type[Any]) -> None:
        patch = FetchPatch(kind)
        heard: list[str] = []

        def inner(batches: Any) -> None:
            next(batches)
            patch.call(fetch_once, batches, noting(heard, "inner"))
            next(batches)

        patch.call(inner, kind(), noting(heard, "outer"))

        assert heard == ["outer", "inner", "outer"]


class TestCallsOfSeveralThreads:
    @pytest.mark.parametrize("first_to_end", [0, 1])
    def test_hear_their_own_fetches_until_each_is_over(
        self, kind: type[Any], first_to_end: int
    ) -> None:
        patch, whole = FetchPatch(kind), methods_of(kind)
        heard: list[str] = []
        calls = [InAThread(patch, kind, noting(heard, name)) for name in ("a", "b")]
        rest = calls[1 - first_to_end]

        calls[0].fetch()
        calls[1].fetch()
        calls[first_to_end].end()
        rest.fetch()
        next(kind())  # somebody else's
        rest.end()

        assert heard == ["a", "b", "ab"[1 - first_to_end]]
        assert methods_of(kind) == whole

    def test_leave_nothing_however_they_overlap(self, kind: type[Any]) -> None:
        patch, whole = FetchPatch(kind), methods_of(kind)

        def fetch_many() -> None:
            for _ in range(300):
                patch.call(fetch_once, kind(), lambda fetch: fetch())

        threads = [threading.Thread(target=fetch_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)

        assert methods_of(kind) == whole


class TestSomebodyElsesPatch:
    def over(self, kind: type[Any], seen: list[str]) -> Callable[..., Any]:
        below = vars(kind)["__next__"]

        def theirs(batches: Any) -> Any:
            seen.append("theirs")
            return below(batches)

        kind.__next__ = theirs
        return theirs

    def test_put_over_ours_stays_and_works(self, kind: type[Any]) -> None:
        patch = FetchPatch(kind)
        seen: list[str] = []
        heard: list[str] = []
        whole = methods_of(kind)
        call = InAThread(patch, kind, noting(heard, "mine"))
        theirs = self.over(kind, seen)

        call.fetch()
        call.end()
        assert methods_of(kind) == {**whole, "__next__": theirs}
        assert (next(kind()), heard, seen) == (0, ["mine"], ["theirs", "theirs"])

    def test_that_puts_ours_back_when_it_goes_is_cleared_up_by_the_next_call(
        self, kind: type[Any]
    ) -> None:
        patch = FetchPatch(kind)
        heard: list[str] = []
        whole = methods_of(kind)
        call = InAThread(patch, kind, noting(heard, "mine"))
        below = vars(kind)["__next__"]
        self.over(kind, [])
        call.end()
        kind.__next__ = below

        patch.call(fetch_once, kind(), noting(heard, "mine"))

        assert heard == ["mine"]
        assert methods_of(kind) == whole


class TestAForkedChild:
    def test_has_the_class_whole_and_no_lock_that_its_parent_held(self, kind: type[Any]) -> None:
        patch, whole = FetchPatch(kind), methods_of(kind)
        call = InAThread(patch, kind, noting([], "mine"))

        def forget() -> bool:
            patch.forget()
            return methods_of(kind) == whole and not patch._lock.locked()

        with patch._lock:
            code = code_of_fork(forget)

        assert code == 0
        call.end()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before

"""Specification of what is read beside the sampling: one round at a time, and never waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gpumon.sources.nvml.slow_reading import SlowThread
from tests.patience import PATIENCE_S, wait_until


@pytest.fixture
def thread() -> Iterator[SlowThread]:
    made = SlowThread()
    yield made
    made.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a call that hangs waits for."""
    opened = threading.Event()
    yield opened
    opened.set()


def hang(gate: threading.Event) -> None:
    gate.wait(PATIENCE_S)


class TestARound:
    def test_is_done_in_order_before_it_is_waited_for_no_more(self, thread: SlowThread) -> None:
        done: list[int] = []

        thread.run([lambda: done.append(1), lambda: done.append(2)], PATIENCE_S)

        assert done == [1, 2]
        assert thread.is_free

    def test_that_takes_long_is_not_waited_for_and_has_nobody_beside_it(
        self, thread: SlowThread, gate: threading.Event
    ) -> None:
        done: list[int] = []
        thread.run([lambda: hang(gate), lambda: done.append(1)], 0.01)
        threads = threading.active_count()

        thread.run([lambda: done.append(2)], 0.01)

        assert not thread.is_free
        assert done == []
        assert threading.active_count() <= threads
        gate.set()
        wait_until(lambda: thread.is_free)
        assert done == [1]

    def test_that_breaks_is_told_of_where_somebody_hears_it(self, thread: SlowThread) -> None:
        def breaks() -> None:
            raise MemoryError("no room")

        with pytest.raises(MemoryError, match="no room"):
            thread.run([breaks], PATIENCE_S)

        thread.run([lambda: None], PATIENCE_S)


class TestWhatIsDoneAfterwards:
    def test_is_done_at_once_where_nothing_is_under_way(self, thread: SlowThread) -> None:
        done: list[int] = []

        thread.afterwards(lambda: done.append(1))

        assert done == [1]

    def test_waits_for_the_end_of_the_round_also_where_all_is_closed(
        self, thread: SlowThread, gate: threading.Event
    ) -> None:
        done: list[int] = []
        others = set(threading.enumerate())
        thread.run([lambda: hang(gate), lambda: done.append(1)], 0.01)
        thread.afterwards(lambda: done.append(2))
        thread.close()
        thread.close()
        assert done == []

        gate.set()
        wait_until(lambda: done == [1, 2])
        wait_until(lambda: others.issuperset(threading.enumerate()))

"""The accounts of a fused step: read rarely, spread evenly, nothing lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks.taps.tensorflow.accounts import SPACING_NS, Accounts, Totals

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

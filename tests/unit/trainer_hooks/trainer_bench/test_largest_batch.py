"""Specification of ``--find-batch`` where memory has no end that may be looked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainer_hooks.trainer_bench.modes import MOST_ON_CPU, largest_batches


@dataclass
class Endless:
    """A session whose device holds whatever it is given."""

    gpus: tuple[str, ...]
    batches: tuple[int, ...] = ()
    tried: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    samples_a_second: float = 100.0

    def measure(self, _: Any, batches: list[int]) -> Endless:
        self.tried += batches
        return self

    def say(self, line: str) -> None:
        self.said.append(line)

    def notice_of(self, batch: int) -> None:
        pass


class TestOnACpu:
    def test_the_search_ends_before_it_takes_the_memory_of_others_and_says_so(self) -> None:
        session: Any = Endless(("CPU:1",))

        outcome = largest_batches(session, margin=0.05)

        assert max(session.tried) == MOST_ON_CPU
        assert f"CPU:1: {MOST_ON_CPU} fit, where the search ends; 3888 with" in session.said[-2]
        assert session.said[1] == "CPU:1[64]: 100sps"
        assert outcome.fields["gpus"][0]["fits"] == MOST_ON_CPU

"""The sums close in every row and in every span, whatever a ledger counts."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.outlets.store.columns import COLUMNS, NS_PER_MS, PARTS, totals_from
from gpumon.outlets.store.store import Store
from tests.builders.store import Card, Machine

_LEFT_MS = 1 + len(PARTS)
"""What is left of a millisecond of each part counts later."""


class Counted(NamedTuple):
    """What one tick brings; shares are of what is left."""

    observed_ns: int
    busy: float
    at_once: list[tuple[IdleCause, float]]
    later: list[tuple[IdleCause, float]]
    suspected: float
    is_written: bool

    def add_to(self, card: Card) -> None:
        for cause, share in self.later:
            card.settle(cause, round(card.pending.amount_ns * share))
        busy_ns = round(self.observed_ns * self.busy)
        card.busy_ns += busy_ns
        left_ns = self.observed_ns - busy_ns
        for cause, share in self.at_once:
            part_ns = round(left_ns * share)
            card.idle_ns[cause] += part_ns
            left_ns -= part_ns
        card.pending.amount_ns += left_ns
        most_ns = card.idle_ns[IdleCause.UNKNOWN]
        card.suspected_ns += round((most_ns - card.suspected_ns) * self.suspected)


SHARES = st.lists(st.tuples(st.sampled_from(CAUSES), st.floats(0.0, 1.0)), max_size=3)
TICKS = st.builds(
    Counted, st.integers(1, 12 * NS_PER_S), st.floats(0.0, 1.0), SHARES, SHARES,
    st.floats(0.0, 1.0), st.booleans(),
)  # fmt: skip


@given(st.lists(TICKS, min_size=1, max_size=40))
def test_sums_close_in_every_row_and_span(ticks: list[Counted]) -> None:
    machine = Machine(Store(None))
    (card,) = machine.cards
    try:
        for counted in ticks:
            counted.add_to(card)
            machine.tick(counted.observed_ns / NS_PER_S)
            if counted.is_written:
                machine.history(0, 1)
        passed_s = machine.wall_s - machine.began_s + 60
        for length_s in (passed_s, 7 * passed_s):
            gpu = machine.history(0, length_s)["gpus"].get("GPU-0")
            for cell, observed_s in enumerate(gpu["observed"] if gpu else []):
                parts_s = [cells[cell] for cells in gpu["parts"].values()]
                assert min(parts_s, default=0.0) >= 0
                assert abs(sum(parts_s) - observed_s) < 0.0006 * len(PARTS)
        _check_rows(machine, card)
    finally:
        machine.store.close()


def _check_rows(machine: Machine, card: Card) -> None:
    totals = card.totals
    counted_ns = {
        "busy": totals.busy_ns,
        "pending": totals.pending_ns,
        "suspected": totals.suspected_ns,
        **{cause.value: totals.idle_ns.get(cause, 0) for cause in CAUSES},
    }
    for table in ("tens", "minutes"):
        rows = machine.store.rows(table, PARTS)
        assert all(min(row) >= 0 for row in rows)
        for name, kept in zip(PARTS, zip(*rows, strict=True), strict=True):
            assert abs(sum(kept) - counted_ns[name] / NS_PER_MS) <= _LEFT_MS, (table, name)


def test_pauses_are_never_longer_than_what_was_lost() -> None:
    """A kill leaves the end of a pause pending, after it was counted."""
    row = dict.fromkeys(COLUMNS, 0) | {
        "busy": 4_000, "unknown": 3_000, "pending": 1_000, "paused": 4_000, "pauses": 2,
    }  # fmt: skip

    totals = totals_from(row, {}, longest_pause_ms=2_000)

    assert totals.pauses.total_ns == totals.lost_ns == 3_000 * NS_PER_MS

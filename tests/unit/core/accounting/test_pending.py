"""Specification of pending time: how it was settled, oldest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.pending import PendingTime, Unsettled
from gpumon.core.phase import IdleCause

WAIT, SAVE, UNUSED = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.NOT_IN_USE
CAUSES = st.sampled_from([WAIT, SAVE, UNUSED])


def settled(*settlements: tuple[IdleCause, int], still: int = 0) -> Unsettled:
    """How so much pending time was settled, one after the other."""
    pending = PendingTime()
    pending.amount_ns = sum(amount for _, amount in settlements) + still
    for cause, amount in settlements:
        pending.settle(cause, amount)
    assert pending.amount_ns == still
    return pending.snapshot(0, 0, 0)


class TestWhatWasSettled:
    def test_is_found_by_when_it_was_pending(self) -> None:
        unsettled = settled((WAIT, 10), (SAVE, 5), (UNUSED, 20))

        assert unsettled.of(0, 10) == {WAIT: 10}
        assert unsettled.of(8, 10) == {WAIT: 2, SAVE: 5, UNUSED: 3}
        assert unsettled.of(15, 20) == {UNUSED: 20}

    def test_is_one_settlement_if_adjacent_ones_have_the_same_cause(self) -> None:
        unsettled = settled((WAIT, 1), (WAIT, 2), (SAVE, 3))

        assert (unsettled.until_ns, unsettled.causes) == ((3, 6), (WAIT, SAVE))

    def test_counts_as_the_oldest_known_if_long_ago(self) -> None:
        ancient = [(UNUSED, 1), (WAIT, 1)]
        unsettled = settled(*ancient, *[(WAIT, 1), (SAVE, 1)] * 100)

        assert len(unsettled.causes) == 128
        assert unsettled.of(0, 1) == {unsettled.causes[0]: 1}
        assert sum(unsettled.of(0, unsettled.settled_ns).values()) == unsettled.settled_ns

    @given(
        st.lists(st.tuples(CAUSES, st.integers(1, 10**12)), max_size=40),
        st.integers(0, 10**13),
        st.integers(0, 10**13),
    )
    def test_is_neither_lost_nor_counted_twice(
        self, settlements: list[tuple[IdleCause, int]], from_ns: int, amount_ns: int
    ) -> None:
        unsettled = settled(*settlements)
        whole_ns = unsettled.settled_ns
        inside_ns = max(0, min(from_ns + amount_ns, whole_ns) - from_ns)

        assert sum(unsettled.of(from_ns, amount_ns).values()) == inside_ns


class TestASnapshot:
    def test_does_not_change_with_what_comes_later(self) -> None:
        pending = PendingTime()
        pending.amount_ns = 20
        pending.settle(WAIT, 10)
        before = pending.snapshot(1, 2, 3)
        pending.settle(WAIT, 5)
        after = pending.snapshot(0, 0, 0)

        assert (before.settled_ns, before.until_ns) == (10, (10,))
        assert (before.unsure_busy_ns, before.unsure_low_ns, before.open_pause_ns) == (1, 2, 3)
        assert (after.settled_ns, after.until_ns) == (15, (15,))

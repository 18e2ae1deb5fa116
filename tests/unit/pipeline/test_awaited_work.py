"""Specification of awaiting: how much idle time is pending, and for whose work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords
from gpumon.core.sample import BusySample
from gpumon.pipeline.awaited_work import AwaitedWork, Awaiting
from gpumon.pipeline.runs import TrackedRun
from tests.builders.monitor import run_that_says
from tests.builders.time import s

ANN, BOB, CID = (frozenset({uid}) for uid in (1001, 1002, 1003))


@pytest.fixture
def awaiting() -> Awaiting:
    return Awaiting()


class TestTimeThatIsPending:
    def test_is_of_those_who_waited_when_it_came(self, awaiting: Awaiting) -> None:
        awaiting.note(ANN, 100)
        awaiting.note(ANN | BOB, 150)

        assert awaiting.owners == ANN | BOB
        assert (awaiting.drop(ANN), awaiting.drop(BOB)) == (100, 50)

    def test_is_less_by_what_nobody_waits_for_any_more(self, awaiting: Awaiting) -> None:
        for owners, awaited_ns in ((ANN, 100), (BOB, 150), (CID, 170)):
            awaiting.note(owners, awaited_ns)
        assert awaiting.drop(ANN) == 100

        awaiting.note(CID, 80)  # 70 are left of those above, and 10 are new

        assert (awaiting.drop(BOB), awaiting.drop(CID)) == (50, 30)

    @pytest.mark.parametrize(("left_ns", "owners"), [(40, BOB), (0, frozenset())])
    def test_that_shrinks_was_settled_and_what_is_left_is_of_who_waits_now(
        self, awaiting: Awaiting, left_ns: int, owners: frozenset[int]
    ) -> None:
        awaiting.note(ANN, 100)
        awaiting.note(BOB, left_ns)

        assert awaiting.owners == owners
        assert awaiting.drop(BOB) == left_ns


class TestTimeBeforeTheFirstWork:
    def test_is_taken_once(self) -> None:
        waits = RingRecords.of([RingEvent(RingKind.ENTER, 0, TrainingPhase.INPUT_WAIT, 0)])
        run = TrackedRun(replace(run_that_says(), events=waits, read_at_ns=s(3)))
        awaited = AwaitedWork()
        awaited.add(BusySample(0, s(2), 0.0), [run])

        first, again = awaited.take([run]), awaited.take([run])

        assert first.idle_ns == {IdleCause.INPUT_WAIT: s(2)}
        assert again == AwaitedWork().take([run])

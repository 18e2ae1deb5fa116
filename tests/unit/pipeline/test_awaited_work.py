"""Specification of awaiting: how much idle time is pending, and for whose work."""

from __future__ import annotations

from dataclasses import replace

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring.events import RingEvent, RingKind, RingRecords
from gpumon.core.sample import BusySample
from gpumon.pipeline.awaited_work import AwaitedWork, Awaiting
from gpumon.pipeline.runs import TrackedRun
from tests.builders_story import Story
from tests.builders_time import s

ANN, BOB, CID = (frozenset({uid}) for uid in (1001, 1002, 1003))


class TestTimeThatIsPending:
    def test_is_of_those_who_waited_when_it_came(self) -> None:
        awaiting = Awaiting()
        awaiting.note(ANN, 100)
        awaiting.note(ANN | BOB, 150)

        assert awaiting.owners == ANN | BOB
        assert awaiting.drop(ANN) == 100
        assert awaiting.drop(BOB) == 50

    def test_is_less_by_what_nobody_waits_for_any_more(self) -> None:
        awaiting = Awaiting()
        for owners, awaited_ns in ((ANN, 100), (BOB, 150), (CID, 170)):
            awaiting.note(owners, awaited_ns)
        assert awaiting.drop(ANN) == 100

        awaiting.note(CID, 80)  # 70 are left of those above, and 10 are new

        assert awaiting.drop(BOB) == 50
        assert awaiting.drop(CID) == 30

    def test_that_shrinks_was_settled_and_what_is_left_is_of_who_waits_now(self) -> None:
        awaiting = Awaiting()
        awaiting.note(ANN, 100)
        awaiting.note(BOB, 40)

        assert awaiting.owners == BOB
        assert awaiting.drop(BOB) == 40

    def test_that_is_settled_altogether_is_of_nobody(self) -> None:
        awaiting = Awaiting()
        awaiting.note(ANN, 100)
        awaiting.note(ANN, 0)

        assert awaiting.owners == frozenset()
        assert awaiting.drop(ANN) == 0


class TestTimeBeforeTheFirstWork:
    def test_is_taken_once(self) -> None:
        story = Story()
        story.ring()
        waits = RingRecords.of([RingEvent(RingKind.ENTER, 0, TrainingPhase.INPUT_WAIT, 0)])
        run = TrackedRun(replace(story.rings["train"], events=waits, read_at_ns=s(3)))
        awaited = AwaitedWork()
        awaited.add(BusySample(0, s(2), 0.0), [run])

        first, again = awaited.take([run]), awaited.take([run])

        assert first.idle_ns == {IdleCause.INPUT_WAIT: s(2)}
        assert again == AwaitedWork().take([run])

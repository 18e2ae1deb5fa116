"""Stack samples are counted by cause, place and the user's own functions."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.evidence import StackEvidence, StackFinding, wilson_interval
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import StackFrame

IDLE, BUSY, MIXED = SampleKind.IDLE, SampleKind.BUSY, SampleKind.MIXED
INPUT, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN

NEXT = StackFrame("_BaseDataLoaderIter.__next__", "/lib/torch/dataloader.py", 700)
FROM_LOOP = StackFrame("main", "/job/train.py", 41)
LOADER = Place(INPUT, NEXT, FROM_LOOP, (FROM_LOOP,), "DataLoader.__next__")
STEP = Place(None, None, FROM_LOOP, (StackFrame("main", "/job/train.py", 44),), "")


def own(*calls: str) -> Place:
    """The user's own calls, the outermost first, each as ``function:line``."""
    frames = tuple(
        StackFrame(name, "/job/train.py", int(line))
        for name, _, line in (call.partition(":") for call in calls)
    )
    return Place(caller=frames[-1], user_frames=frames)


def finding(*samples: tuple[SampleKind, Place, int]) -> StackFinding:
    evidence = StackEvidence()
    for kind, place, count in samples:
        for _ in range(count):
            evidence.add(kind, place)
    return evidence.finding()


class TestTheShareOfACause:
    def test_is_that_of_the_idle_samples_alone(self) -> None:
        found = finding((IDLE, LOADER, 38), (IDLE, STEP, 3), (BUSY, STEP, 20))

        assert found.main is not None
        assert (found.main.cause, found.main.samples, found.idle_samples) == (INPUT, 38, 41)
        assert [share.cause for share in found.causes] == [INPUT, UNKNOWN]

    def test_comes_with_its_interval(self) -> None:
        assert [round(end, 3) for end in wilson_interval(38, 41)] == [0.806, 0.975]
        assert wilson_interval(10, 10)[1] == pytest.approx(1.0)
        assert wilson_interval(0, 10)[0] == pytest.approx(0.0)

    def test_is_that_of_the_time_that_they_stand_for(self) -> None:
        evidence = StackEvidence()
        for _ in range(20):
            evidence.add(IDLE, LOADER, weight=3.0)
            evidence.add(IDLE, STEP, weight=1.0)
        found = evidence.finding()

        assert found.main is not None
        assert found.main.samples == 20
        assert found.main.ratio == pytest.approx(0.75)
        # They show no more than 32 that count the same.
        assert (found.main.low, found.main.high) == pytest.approx(wilson_interval(24, 32))
        assert found.places[0].what == "DataLoader.__next__"

    def test_of_all_samples_adds_up(self) -> None:
        evidence = StackEvidence()
        for cause in IdleCause:
            evidence.add(IDLE, Place(cause), weight=0.1 + len(cause.value))
        shares = evidence.finding().causes

        assert sum(share.ratio for share in shares) == pytest.approx(1.0)
        assert all(0.0 <= one.low <= one.ratio <= one.high <= 1.0 for one in shares)

    def test_is_not_enough_below_ten_samples(self) -> None:
        assert not finding((IDLE, LOADER, 9)).is_enough
        assert finding((IDLE, LOADER, 10)).is_enough

    def test_leaves_out_mixed_and_unobserved_samples(self) -> None:
        found = finding((SampleKind.MIXED, LOADER, 5), (SampleKind.UNOBSERVED, LOADER, 2))

        assert (found.mixed_samples, found.unobserved_samples, found.causes) == (5, 2, ())


class TestTheMostFrequentPlace:
    def test_is_one_whatever_line_of_the_library_it_is_in(self) -> None:
        other_line = LOADER._replace(frame=NEXT._replace(line=712))
        found = finding((IDLE, LOADER, 6), (IDLE, other_line, 6), (IDLE, STEP, 1))

        assert (found.places[0].what, found.places[0].samples) == ("DataLoader.__next__", 12)

    def test_differs_by_caller(self) -> None:
        validation = LOADER._replace(caller=StackFrame("validate", "/job/train.py", 77))
        found = finding((IDLE, LOADER, 6), (IDLE, validation, 5))

        assert [place.samples for place in found.places] == [6, 5]


class TestTheUsersFunction:
    def test_is_there_in_idle_samples_and_not_in_busy_ones(self) -> None:
        found = finding(
            (IDLE, own("<module>:60", "main:17", "read_shard:8"), 20),
            (BUSY, own("<module>:60", "main:20", "step:30"), 10),
        )

        assert found.function is not None
        assert found.function.frame == StackFrame("read_shard", "/job/train.py", 8)
        assert found.function.called_from == StackFrame("main", "/job/train.py", 17)

    def test_is_the_outermost_of_several(self) -> None:
        found = finding(
            (IDLE, own("main:17", "validate:77", "score:80"), 20),
            (BUSY, own("main:20"), 10),
        )

        assert found.function is not None
        assert found.function.frame.function == "validate"

    @pytest.mark.parametrize(("while_busy", "is_named"), [(0, True), (1, False), (2, False)])
    def test_stands_in_less_than_a_tenth_of_busy_samples(
        self, while_busy: int, is_named: bool
    ) -> None:
        place = own("main:17", "read_shard:8")
        found = finding((IDLE, place, 20), (BUSY, place, while_busy), (BUSY, own("main:20"), 9))

        assert (found.function is not None) == is_named

    def test_must_stand_in_more_than_half_of_the_idle_ones(self) -> None:
        found = finding(
            (IDLE, own("main:17", "read_shard:8"), 10),
            (IDLE, own("main:19"), 10),
            (BUSY, own("main:20"), 10),
        )

        assert found.function is None

    def test_is_the_outermost_one_that_is_not_in_all_mixed_samples_either(self) -> None:
        scoring = own("main:9", "evaluate:5", "overlap:3")
        found = finding(
            (IDLE, scoring, 30), (MIXED, scoring, 3), (MIXED, own("main:7", "step:1"), 5)
        )

        assert found.function is not None
        assert found.function.frame.function == "evaluate"
        assert not found.function.is_compared

    def test_is_the_innermost_common_one_where_nothing_can_be_compared(self) -> None:
        found = finding((IDLE, own("main:17", "read_shard:8"), 20))

        assert found.function is not None
        assert found.function.frame.function == "read_shard"
        assert not found.function.is_compared

    def test_is_counted_once_where_it_calls_itself(self) -> None:
        found = finding(
            (IDLE, own("main:17", "walk:8", "walk:8", "walk:8"), 12), (BUSY, own("main:20"), 4)
        )

        assert found.function is not None
        assert found.function.idle_samples == 12


def test_memory_does_not_grow_with_the_number_of_places() -> None:
    evidence = StackEvidence()
    for line in range(5_000):
        evidence.add(IDLE, own(f"function_{line}:{line}"))

    found = evidence.finding()
    assert found.idle_samples == 5_000
    assert len(found.places) == 512

"""Specification of the ends of steps that Keras' own threads hear of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.core.ring.events import RingKind
from tests.builders_ring import WrittenRing
from tests.ring_contents import records_in
from trainer_hooks.keras.step_times import StepEnds, StepTimes

MS = 1_000_000


@pytest.fixture
def ring(tmp_path: Path) -> WrittenRing:
    return WrittenRing(tmp_path)


def done(ring: WrittenRing) -> list[tuple[int, int]]:
    records = records_in(ring.path.read_bytes())
    return [(e.value, e.at_ns) for e in records if e.kind is RingKind.DEVICE_DONE]


class TestResultsThatAreThere:
    def test_end_the_step_of_their_batch_in_its_epoch(self, ring: WrittenRing) -> None:
        ends = StepEnds(ring.writer, 1)
        ring.writer.step(10)
        ends.epoch_begins()
        ring.writer.step(3)

        for batch in range(3):
            ends.results_are_there(batch, 100 + batch)

        assert done(ring) == [(11, 100), (12, 101), (13, 102)]

    @pytest.mark.parametrize("batches", [(0, 4, 8), (3, 7, 9)], ids=["first", "last"])
    def test_end_all_steps_of_an_execution_whichever_of_its_batches_keras_names(
        self, ring: WrittenRing, batches: tuple[int, ...]
    ) -> None:
        ends = StepEnds(ring.writer, 4)
        ends.epoch_begins()
        ring.writer.step(10)  # two of four, and the last of two

        for batch in batches:
            ends.results_are_there(batch, 100)

        assert [step for step, _ in done(ring)] == [4, 8, 10]

    def test_are_late_news_where_the_device_tells_itself(self, ring: WrittenRing) -> None:
        ends = StepEnds(ring.writer, 1)
        ends.epoch_begins()
        ring.writer.step(2)

        ends.told(1, 90)
        ends.results_are_there(0, 100)
        ends.told(2, 190)

        assert done(ring) == [(1, 90), (2, 190)]

    def test_are_what_the_median_step_is_made_of(self, ring: WrittenRing) -> None:
        ends = StepEnds(ring.writer, 1)
        ends.times = StepTimes()
        ends.epoch_begins()
        ring.writer.step(20)

        for batch in range(20):
            ends.results_are_there(batch, (batch + 1) * 5 * MS)

        assert ends.times.median_ns == pytest.approx(5 * MS, rel=0.01)

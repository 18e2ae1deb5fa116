"""Specification of the time that callbacks take, by class: sixteen names, the rest together."""

from __future__ import annotations

from dataclasses import replace

from gpumon.core.ring_format.events import RunFacts
from gpumon.core.ring_format.facts import encode_facts, parse_facts
from tests.unit.core.ring_format.test_facts import FACTS
from trainer_hooks.trainers.callback_times import OTHERS, CallbackTimes


class PenWithFacts:
    """As much of a writer as is asked of it here."""

    def __init__(self) -> None:
        self.facts = replace(FACTS, callback_ns={})

    def write_facts(self, facts: RunFacts) -> None:
        self.facts = facts


class TestTheTimes:
    def test_are_those_between_one_return_and_the_next(self) -> None:
        times = CallbackTimes()
        first, second = times.slot_of("TensorBoard"), times.slot_of("CSVLogger")
        times.begin(100)
        times.returned(first, 130)
        times.returned(second, 135)
        times.begin(1_000)
        times.returned(first, 1_001)

        assert times.spent_ns == {"TensorBoard": 31, "CSVLogger": 5}

    def test_go_on_in_the_next_training_of_a_process(self) -> None:
        times = CallbackTimes({"TensorBoard": 70})
        times.begin(0)
        times.returned(times.slot_of("TensorBoard"), 7)

        assert times.spent_ns == {"TensorBoard": 77}

    def test_of_a_training_within_a_callback_are_added_once(self) -> None:
        pen = PenWithFacts()
        outer = CallbackTimes(pen.facts.callback_ns)
        outer.begin(0)
        outer.returned(outer.slot_of("Outer"), 5)
        outer.write_facts(pen)  # type: ignore[arg-type]
        inner = CallbackTimes(pen.facts.callback_ns)
        inner.begin(5)
        inner.returned(inner.slot_of("Inner"), 25)
        inner.write_facts(pen)  # type: ignore[arg-type]
        outer.returned(outer.slot_of("Outer"), 30)
        for _ in range(2):
            outer.write_facts(pen)  # type: ignore[arg-type]

        assert pen.facts.callback_ns == {"Outer": 30, "Inner": 20}

    def test_leave_out_classes_that_took_none(self) -> None:
        times = CallbackTimes()
        times.slot_of("Idle")

        assert times.spent_ns == {}


class TestTheClasses:
    def test_beyond_the_sixteenth_are_recorded_together(self) -> None:
        times = CallbackTimes()
        times.begin(0)
        for number in range(40):
            times.returned(times.slot_of(f"Callback{number}"), number + 1)

        assert len(times.spent_ns) == 17
        assert times.spent_ns[OTHERS] == 24

    def test_stay_seventeen_however_many_trainings_there_are(self) -> None:
        known: dict[str, int] = {}
        for training in range(5):
            times = CallbackTimes(known)
            times.begin(0)
            for number in range(30):
                times.returned(times.slot_of(f"Callback{training}{number}"), number + 1)
            known = times.spent_ns

        assert len(known) == 17
        assert sum(known.values()) == 5 * 30

    def test_of_any_name_can_be_written_into_the_ring(self) -> None:
        times = CallbackTimes()
        times.begin(0)
        for number in range(20):
            name = f"{number}\x1b[31m\n\N{GRINNING FACE}" * 50
            times.returned(times.slot_of(name), number + 1)

        raw = encode_facts(replace(FACTS, callback_ns=times.spent_ns))

        names = list(parse_facts(raw).callback_ns)
        assert len(names) == 17
        assert all(name.isprintable() for name in names)

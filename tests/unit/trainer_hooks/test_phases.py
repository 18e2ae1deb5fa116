"""The tags for custom loops: nested, transparent, and without errors of their own."""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from gpumon.core.ring_format.events import LOOP_BEGAN, LOOP_ENDED, RingKind
from tests.processes import code_of_fork
from tests.unit.trainer_hooks.ring.ring_contents import events
from trainer_hooks import phase, step, timed
from trainer_hooks.ring.ring_writer import RingWriter


class Loader:
    """Shaped like torch's ``DataLoader``."""

    def __init__(self, num_workers: int = 0) -> None:
        self.num_workers = num_workers
        self.batch_size = 8

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __contains__(self, item: object) -> bool:
        return item in range(3)


class LoaderThatIsItsOwnIterator:
    """As those of DALI are."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.rest = [1, 2]

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self.rest:
            raise StopIteration
        return self.rest.pop(0)


def present(writer: RingWriter) -> str:
    return PHASES[writer.present[0]].value


def entered(writer: RingWriter) -> list[str]:
    return [event.phase.value for event in events(writer) if event.kind is RingKind.ENTER]


class TestPhase:
    def test_lasts_as_long_as_its_block_and_gives_way_to_one_inside_it(
        self, writer: RingWriter
    ) -> None:
        with phase("train_step"):
            assert present(writer) == "train_step"
            with phase("input_wait"):
                assert present(writer) == "input_wait"
            assert present(writer) == "train_step"
        assert present(writer) == "other"

    def test_before_the_first_region_is_start_up(self, writer: RingWriter) -> None:
        assert present(writer) == "start_up"
        with phase("start_up"):
            with phase("input_wait"):
                pass
            assert present(writer) == "start_up"
        assert present(writer) == "other"

    def test_makes_what_is_inside_validation_part_of_it(self, writer: RingWriter) -> None:
        with phase("validation"), phase("input_wait"):
            assert writer.present == (PHASE_NUMBER[TrainingPhase.INPUT_WAIT], 1)
        assert writer.present[1] == 0

    def test_lets_an_exception_through_and_ends(self, writer: RingWriter) -> None:
        with pytest.raises(KeyError), phase("train_step"):
            raise KeyError
        assert present(writer) == "other"

    def test_phase_of_one_task_ends_though_another_began_in_it(self, writer: RingWriter) -> None:
        first, second = phase("input_wait"), phase("checkpoint")
        with second, second:
            pass
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)

        assert present(writer) == "other"

    def test_phase_on_another_thread_changes_nothing(self, writer: RingWriter) -> None:
        thread = threading.Thread(target=wait_and_step)
        thread.start()
        thread.join()

        assert (present(writer), writer.steps) == ("start_up", 0)

    def test_phase_in_a_forked_child_changes_nothing(self, writer: RingWriter) -> None:
        assert code_of_fork(wait_and_step) == 0
        assert entered(writer) == ["start_up"]

    def test_around_a_fork_does_not_disturb_the_child(self, writer: RingWriter) -> None:
        with phase("train_step"):
            child = os.fork()
        if child == 0:
            os._exit(0)
        _, status = os.waitpid(child, 0)

        assert status == 0
        assert entered(writer) == ["start_up", "train_step", "other"]


def wait_and_step() -> bool:
    with phase("input_wait"):
        step()
    return True


@pytest.mark.usefixtures("new_process")
class TestAnUnknownPhase:
    def test_is_other_with_one_warning_that_lists_the_phases(
        self, writer: RingWriter, recwarn: pytest.WarningsRecorder
    ) -> None:
        for name in ("trainstep", "trainstep"):
            with phase(name):
                assert present(writer) == "other"

        (warning,) = recwarn
        assert warning.category is RuntimeWarning
        assert "'trainstep'" in str(warning.message)
        assert all(known.value in str(warning.message) for known in PHASES)
        assert warning.filename == __file__

    def test_has_eight_warnings_at_most_and_the_last_one_ends_them(
        self, writer: RingWriter, recwarn: pytest.WarningsRecorder
    ) -> None:
        for number in range(100):
            with phase(f"step {number}"):
                pass

        *_, last_but_one, last = texts = [str(warning.message) for warning in recwarn]
        assert len(texts) == 8
        assert "'step 1'" in texts[1]
        assert "8 are enough" in last
        assert "enough" not in last_but_one

    @pytest.mark.parametrize("no_text", [None, 4, ["train_step"], object()])
    def test_need_not_even_be_text(self, writer: RingWriter, no_text: object) -> None:
        with pytest.warns(RuntimeWarning, match="of type"), phase(no_text):  # type: ignore[arg-type]
            assert present(writer) == "other"

    def test_unknown_phase_is_not_one_of_the_twelve(
        self, writer: RingWriter, recwarn: pytest.WarningsRecorder
    ) -> None:
        for known in PHASES:
            for name in (known, known.value):
                with phase(name):
                    assert present(writer) == known.value

        assert len(recwarn) == 0


class TestTimed:
    def test_makes_getting_each_item_a_wait_for_input(self, writer: RingWriter) -> None:
        seen = []

        def source() -> Iterator[int]:
            for item in range(2):
                seen.append(present(writer))
                yield item

        found = [(item, present(writer)) for item in timed(source())]

        assert found == [(0, "other"), (1, "other")]
        assert seen == ["input_wait", "input_wait"]

    def test_keeps_the_length_and_can_be_iterated_again_and_copied(
        self, writer: RingWriter
    ) -> None:
        batches = timed([1, 2, 3])

        assert len(batches) == 3
        assert list(batches) == list(batches) == list(copy.copy(batches)) == [1, 2, 3]

    def test_timed_generator_has_no_length_and_is_true(self, writer: RingWriter) -> None:
        generator = timed(item for item in [1])

        assert not hasattr(generator, "__len__")
        assert bool(generator)
        assert next(iter(generator)) == 1

    def test_has_the_attributes_of_the_original(self, writer: RingWriter) -> None:
        batches = timed(Loader())

        assert (batches.num_workers, len(batches)) == (0, 3)
        with pytest.raises(AttributeError):
            _ = batches.no_such_thing

    def test_reports_how_the_first_loader_loads(self, writer: RingWriter) -> None:
        timed([1, 2])
        timed(Loader())
        timed(Loader(num_workers=4))

        assert writer.facts.loader["workers"] == 0
        assert writer.facts.loader["batches"] == 3

    def test_records_the_class_of_its_data_and_the_calling_line(self, writer: RingWriter) -> None:
        line = sys._getframe().f_lineno + 1
        timed(Loader())

        facts = writer.facts.loader
        assert (facts["class"], facts["made_at"]) == ("Loader", f"test_phases.py:{line}")
        assert str(facts["defined_at"]).startswith("test_phases.py:")

    def test_records_the_validation_loader_beside_the_training_loader(
        self, writer: RingWriter
    ) -> None:
        before = timed(Loader(num_workers=1))
        with phase("validation"):
            timed([1])
            lines = [sys._getframe().f_lineno for _ in timed(Loader(num_workers=2))]
            list(before)

        facts = writer.facts.loader
        assert (facts["workers"], facts["validation_workers"]) == (1, 2)
        assert facts["validation_class"] == "Loader"
        assert facts["validation_made_at"] == f"test_phases.py:{lines[0]}"

    def test_own_iterator_keeps_its_length_and_attributes(self, writer: RingWriter) -> None:
        batches: Any = timed(LoaderThatIsItsOwnIterator())
        first = list(batches)
        batches.reset()

        assert (len(batches), first, list(batches)) == (2, [1, 2], [1, 2])


def marks(writer: RingWriter) -> list[str]:
    """What the ring says of loops, and the waits for input between."""
    names = {LOOP_BEGAN: "began", LOOP_ENDED: "ended"}
    return [
        names.get(event.value, "?") if event.kind is RingKind.EVENT else event.phase.value
        for event in events(writer)
        if event.kind is RingKind.EVENT
        or (event.kind is RingKind.ENTER and event.phase is TrainingPhase.INPUT_WAIT)
    ]


class TestALoopOverBatches:
    def test_records_where_it_begins_and_its_last_batch(self, writer: RingWriter) -> None:
        list(timed([1], phase="host_to_device"))
        assert marks(writer) == []
        batches = timed(iter([1, 2]))
        assert next(iter(batches)) == 1
        assert marks(writer) == ["began", "input_wait"]
        assert list(batches) == [2]

        assert marks(writer)[-2:] == ["input_wait", "ended"]

    def test_ends_where_it_is_left_by_a_break(self, writer: RingWriter) -> None:
        for _ in timed([1, 2, 3]):
            break

        assert marks(writer)[-1] == "ended"

    def test_ends_with_an_exception(self, writer: RingWriter) -> None:
        def source() -> Iterator[int]:
            yield from (1 // one for one in (1, 0))

        with pytest.raises(ZeroDivisionError):
            list(timed(source()))

        assert marks(writer)[-1] == "ended"

    @pytest.mark.parametrize("name", ["validation", "predict"])
    def test_is_none_where_nothing_is_trained(self, writer: RingWriter, name: str) -> None:
        with phase(name):
            list(timed([1]))

        assert "began" not in marks(writer)


class TestWithoutARing:
    @pytest.fixture(autouse=True)
    def no_folder(self, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (own_folder / "file").write_text("")
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(own_folder / "file"))

    def test_the_loop_runs_and_there_is_one_warning(self, recwarn: pytest.WarningsRecorder) -> None:
        for _ in timed([1, 2]):
            with phase("train_step"):
                step(4)

        (warning,) = recwarn
        assert "no phases" in str(warning.message)


class TestStep:
    def test_counts_steps_and_samples(self, writer: RingWriter) -> None:
        assert present(writer) == "start_up"
        step(samples=32)
        assert present(writer) == "other"
        step()
        step(np.int64(8))  # type: ignore[arg-type]  # or whatever can be an index

        assert (writer.steps, writer.samples) == (3, 40)

    @pytest.mark.parametrize("name", ["start_up", "train_step"])
    def test_leaves_the_phase_alone_in_a_region(self, writer: RingWriter, name: str) -> None:
        with phase(name):
            step()
            assert present(writer) == name


@pytest.mark.usefixtures("new_process")
class TestAStepWithBadSamples:
    @pytest.mark.parametrize(
        "bad", ["x", 3.5, -1, 1 << 70, 10**5_000, np.array([1, 2]), {"n": 1}], ids=type
    )
    def test_is_not_counted_and_the_next_one_is(self, writer: RingWriter, bad: object) -> None:
        step(samples=8)
        with pytest.warns(RuntimeWarning, match="does not count a step"):
            step(samples=bad)  # type: ignore[arg-type]
        step(samples=8)
        with phase("train_step"):
            assert present(writer) == "train_step"

        assert (writer.enabled, writer.steps, writer.samples) == (True, 2, 16)

    def test_is_warned_of_once_at_the_line_of_the_caller(
        self, writer: RingWriter, recwarn: pytest.WarningsRecorder
    ) -> None:
        for _ in range(3):
            step(samples="x")  # type: ignore[arg-type]

        (warning,) = recwarn
        assert (warning.category, warning.filename) == (RuntimeWarning, __file__)

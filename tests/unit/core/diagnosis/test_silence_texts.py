"""Specification of the sentences on a run that counts no step, or cannot run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.diagnosis.silence_texts import (
    hanging_text,
    run_named,
    silence_clause,
    sleeping_sentence,
    suspended_text,
)
from gpumon.core.phase import TrainingPhase
from gpumon.core.report.report import RunReport
from gpumon.core.ring_format.events import LoaderFacts
from gpumon.core.ring_format.silence import RunSilence
from tests.builders.report import run
from tests.builders.time import s

WAIT, STEP, OTHER = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP, TrainingPhase.OTHER
OF_THE_LOADER = (WAIT, TrainingPhase.HOST_TO_DEVICE)


def with_loader(name: str = "Slow") -> RunReport:
    """A run that names its loader, and where that was made."""
    loader: LoaderFacts = {
        "kind": "PyDataset",
        "class": name,
        "workers": 1,
        "made_at": "train.py:42",
    }
    return replace(run(), loader=loader)


def silence(phase: TrainingPhase = WAIT, silent_s: float = 40.0) -> RunSilence:
    return RunSilence(s(7), phase, s(silent_s))


class TestTheNameOfARun:
    def test_has_its_pid(self) -> None:
        assert run_named(run()) == "run train (pid 4711)"

    def test_is_safe_to_print(self) -> None:
        assert "\x1b" not in run_named(replace(run(), run="a\x1b[2J"))


class TestTheClauseOnItsSilence:
    @pytest.mark.parametrize("phase", TrainingPhase)
    def test_says_for_how_long_and_in_which_phase(self, phase: TrainingPhase) -> None:
        clause = silence_clause(run(), silence(phase))

        assert clause.startswith("has counted no step for 40 s, ")
        assert len(clause) > len("has counted no step for 40 s, in ")

    def test_has_words_of_its_own_for_each_phase(self) -> None:
        assert len({silence_clause(run(), silence(phase)) for phase in TrainingPhase}) == len(
            TrainingPhase
        )

    def test_says_that_code_is_not_tagged(self) -> None:
        assert silence_clause(run(), silence(OTHER)) == (
            "has counted no step for 40 s, in untagged code"
        )

    def test_says_of_a_first_batch_that_it_is_waited_for(self) -> None:
        waits = silence(silent_s=360)._replace(is_first_batch=True)

        assert silence_clause(run(), waits) == "has waited for its first batch for 6 min"

    @pytest.mark.parametrize("phase", OF_THE_LOADER)
    @pytest.mark.parametrize("is_first", [True, False])
    def test_names_the_file_and_line_of_a_loader_that_is_at_work(
        self, phase: TrainingPhase, is_first: bool
    ) -> None:
        found = silence(phase)._replace(is_first_batch=is_first)

        assert silence_clause(with_loader(), found).endswith(", in Slow(workers=1) (train.py:42)")

    @pytest.mark.parametrize("phase", [one for one in TrainingPhase if one not in OF_THE_LOADER])
    def test_names_no_loader_where_that_is_not_at_work(self, phase: TrainingPhase) -> None:
        assert "train.py" not in silence_clause(with_loader(), silence(phase))

    def test_is_safe_to_print(self) -> None:
        assert "\x1b" not in silence_clause(with_loader("Slow\x1b[31m"), silence())


class TestTheSentenceOnItsSleep:
    def test_names_the_function_of_the_kernel(self) -> None:
        asleep = silence()._replace(sleeps_in="futex_wait_queue")

        assert sleeping_sentence(asleep) == (
            "Its process sleeps in the kernel, in futex_wait_queue."
        )

    @pytest.mark.parametrize("function", [None, ""])
    def test_is_empty_where_that_is_not_known(self, function: str | None) -> None:
        assert sleeping_sentence(silence()._replace(sleeps_in=function)) == ""


class TestTheAdviceOnAHang:
    def test_names_the_process_to_look_at(self) -> None:
        text = hanging_text([run()])

        assert text.startswith("`py-spy dump --pid 4711` prints")
        assert "(and of" not in text

    def test_names_the_processes_beside_it(self) -> None:
        text = hanging_text([replace(run(), pid=pid) for pid in (11, 12, 13)])

        assert "--pid 11`" in text
        assert "(and of 12 and 13)" in text

    @pytest.mark.parametrize("world_size", [1, 8])
    def test_points_at_another_rank_only_in_a_job_of_several(self, world_size: int) -> None:
        text = hanging_text([replace(run(), world_size=world_size)])

        assert ("look at that rank" in text) is (world_size > 1)

    @pytest.mark.parametrize("word", ["worker", "times as fast", "prefetch", "give", "healthy"])
    def test_is_on_no_speed_and_on_no_loader(self, word: str) -> None:
        assert word not in hanging_text([run(workers=1, prefetch=False)])


class TestTheAdviceOnASuspendedRun:
    @pytest.mark.parametrize(
        ("pids", "named"),
        [((), "resume it"), ((7,), "resume pid 7 the"), ((7, 8), "resume pid 7 and 8 the")],
    )
    def test_names_what_to_resume(self, pids: tuple[int, ...], named: str) -> None:
        assert suspended_text([replace(run(), pid=pid) for pid in pids]).startswith(named)

    def test_counts_what_it_does_not_name(self) -> None:
        text = suspended_text([replace(run(), pid=pid) for pid in range(10)])

        assert "pid 0, 1, 2, 3 and 6 more" in text

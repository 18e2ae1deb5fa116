"""Specification of how the model of suspicion is fitted, and how it is tested on others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.settings.input_model import AT_LEAST, PRIOR, TERMS, WEIGHTS
from gpumon.core.verdict import LikelyCause
from tests.truth.input_model.cases import (
    FAMILIES,
    Case,
    cases_of,
    recorded_cases,
    worst_of_each_machine,
)
from tests.truth.input_model.fitting import solved
from tests.truth.input_model.scored import (
    Graded,
    brier,
    graded,
    left_out_table,
    lost_seconds_table,
    precision,
    rates_table,
    recall,
    reliability_table,
    terms_table,
)
from tests.truth.measured_page import PAGE
from tests.truth.workloads import DEVELOPMENT_SEEDS, EVALUATION_SEEDS, TRAINING_SEEDS

SOME = [
    Graded("workloads", "a", 0.9, True), Graded("workloads", "a", 0.7, False),
    Graded("renewal", "b", 0.35, True), Graded("renewal", "b", 0.1, False),
]  # fmt: skip


def case(probability: float | None, *, starved_ratio: float = 0.3, lost_s: float = 10.0) -> Case:
    suspicion = None if probability is None else Suspicion(probability, (LikelyCause.LATE_INPUT,))
    return Case(
        family="workloads", kind="worker_waves", seed=1, minutes=15.0, gpu=0, period_s=1.0,
        pauses=9, lost_s=lost_s, suspicion=suspicion, starved_ratio=starved_ratio,
        truly_lost_s=100.0,
    )  # fmt: skip


class TestTheFit:
    @staticmethod
    def weights(answers: Sequence[float], count: int = 20_000) -> list[float]:
        """Fitted to terms that are drawn, and answers that follow from these weights."""
        rng = np.random.default_rng(1)
        values = rng.uniform(-1, 1, size=(count, len(TERMS)))
        odds = math.log(PRIOR / (1 - PRIOR)) + values @ np.array(answers)
        is_starved = rng.random(count) < 1 / (1 + np.exp(-odds))
        found: list[float] = solved(values, is_starved, np.ones(count)).tolist()
        return found

    def test_finds_the_weights_that_made_the_answers(self) -> None:
        answers = [2.0, -0.6, -1.0, -0.5, -1.2, -1.5, -0.8]

        assert self.weights(answers) == pytest.approx(answers, abs=0.12)

    def test_never_turns_a_statement_over(self) -> None:
        found = self.weights([-1.0, *[1.0] * (len(TERMS) - 1)])

        least = [AT_LEAST.get(name, 0.0) for name in TERMS]
        assert found == [least[0], *(-weight for weight in least[1:])]

    def test_is_made_on_other_machines_than_it_is_diagnosed_by(self) -> None:
        assert not {*TRAINING_SEEDS} & {*EVALUATION_SEEDS, *DEVELOPMENT_SEEDS}

    def test_has_three_generators_with_late_loaders_and_others(self) -> None:
        assert len(FAMILIES) == 3
        assert all(len(family.kinds) >= 20 for family in FAMILIES.values())


class TestTheScore:
    def test_counts_who_is_accused_rightly_and_who_is_found(self) -> None:
        assert precision(SOME) == 1 / 2
        assert recall(SOME) == 1 / 2

    def test_is_the_mean_square_of_what_was_reported_and_was_so(self) -> None:
        expected = (0.1**2 + 0.7**2 + 0.65**2 + 0.1**2) / 4
        assert brier(SOME) == pytest.approx(expected)

    def test_of_a_machine_is_that_of_the_gpu_that_lost_most(self) -> None:
        cases = [case(0.9, lost_s=5.0), case(0.2, lost_s=50.0, starved_ratio=0.0)]

        assert graded(cases) == [Graded("workloads", "worker_waves", 0.2, True)]

    def test_leaves_out_machines_without_a_probability(self) -> None:
        assert worst_of_each_machine([case(None)]) == []

    def test_has_a_row_for_each_generator_and_for_all_together(self) -> None:
        table = left_out_table(SOME)

        assert "| workloads | 2 | 50% | 2 | 0.50 | 1.000 |" in table
        assert "| each in turn, together | 4 |" in table
        assert "| 0.9 to 1.0 | 1 (few) |" in reliability_table(SOME)

    def test_says_how_far_the_lost_seconds_are_off(self) -> None:
        assert "| 1 s | 2 | 5.0% | 9.0% | 50% |" in lost_seconds_table(
            [case(0.9, lost_s=100.0), case(0.9, lost_s=90.0)]
        )

    def test_compares_one_machine_at_several_rates(self) -> None:
        cases = [case(0.9)._replace(period_s=period_s) for period_s in (0.2, 1.0, 5.0)]

        assert "| workloads | 1 | 100% |" in rates_table(cases)


@pytest.mark.parametrize("family", FAMILIES)
def test_machines_of_each_generator_are_read_and_graded(family: str) -> None:
    """A short version of ``python -m tests.truth.input_model score``."""
    kinds = FAMILIES[family].kinds[::6]
    some = graded(one for kind in kinds for one in cases_of(family, kind, 4))

    assert len(some) >= 3
    accused = [one for one in some if one.probability >= 0.5]
    assert sum(one.is_starved for one in accused) * 2 >= len(accused)


def test_recorded_boards_are_read_and_graded() -> None:
    some = graded(recorded_cases())

    assert len(some) > 100
    assert precision(some) > 0.7


def test_the_page_has_the_model_that_the_product_has() -> None:
    page = PAGE.with_name("how-sure.md").read_text(encoding="utf-8")

    assert terms_table() in page
    assert f"`input_probability` then is {PRIOR}" in page
    assert set(WEIGHTS) == set(TERMS)

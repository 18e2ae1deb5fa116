"""How the model of suspicion is fitted and scored."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.settings.input_model import AT_LEAST, PRIOR, TERMS, WEIGHTS
from gpumon.core.verdict import LikelyCause
from tests.truth.input_model.cases import FAMILIES, Case, cases_of, recorded_cases
from tests.truth.input_model.fitting import solved
from tests.truth.input_model.scored import (
    Graded,
    brier,
    graded,
    left_out_table,
    lost_seconds_table,
    precision,
    rates_table,
    reliability_table,
    terms_table,
)
from tests.truth.tables import DOCS, put
from tests.truth.workloads import DEVELOPMENT_SEEDS, EVALUATION_SEEDS, TRAINING_SEEDS

SOME = [
    Graded("workloads", "a", 0.9, True), Graded("workloads", "a", 0.7, False),
    Graded("renewal", "b", 0.35, True), Graded("renewal", "b", 0.1, False),
]  # fmt: skip


def case(probability: float, *, lost_s: float = 10.0, starved_ratio: float = 0.3) -> Case:
    suspicion = Suspicion(probability, (LikelyCause.LATE_INPUT,))
    return Case(
        "workloads", "worker_waves", 1, 15.0, 0, 1.0, 9, lost_s, suspicion, starved_ratio, 100.0
    )


@pytest.mark.parametrize(
    "weights", [[2.0, -0.6, -1.0, -0.5, -1.2, -1.5, -0.8], [-1.0, *[1.0] * (len(TERMS) - 1)]]
)
def test_a_fit_finds_the_weights_of_the_answers_and_reverses_no_statement(
    weights: list[float],
) -> None:
    rng = np.random.default_rng(1)
    values = rng.uniform(-1, 1, size=(20_000, len(TERMS)))
    odds = math.log(PRIOR / (1 - PRIOR)) + values @ np.array(weights)
    is_starved = rng.random(20_000) < 1 / (1 + np.exp(-odds))

    found = solved(values, is_starved, np.ones(20_000)).tolist()

    least = [AT_LEAST.get(name, 0.0) for name in TERMS]
    bounded = [least[0], *(-weight for weight in least[1:])]
    assert found == pytest.approx(weights if weights[0] > 0 else bounded, abs=0.12)


def test_seeds_for_fitting_scoring_and_tuning_differ() -> None:
    seeds = [*TRAINING_SEEDS, *EVALUATION_SEEDS, *DEVELOPMENT_SEEDS]

    assert len(set(seeds)) == len(seeds)


def test_the_tables_show_precision_reliability_and_errors() -> None:
    assert brier(SOME) == pytest.approx((0.1**2 + 0.7**2 + 0.65**2 + 0.1**2) / 4)
    assert "| workloads | 2 | 50% | 2 | 0.50 | 1.000 |" in left_out_table(SOME)
    assert "| each in turn, together | 4 |" in left_out_table(SOME)
    assert "| 0.9 to 1.0 | 1 (few) |" in reliability_table(SOME)
    errors = lost_seconds_table([case(0.9, lost_s=100.0), case(0.9, lost_s=90.0)])
    assert "| 1 s | 2 | 5.0% | 9.0% | 50% |" in errors
    rates = [case(0.9)._replace(period_s=period_s) for period_s in (0.2, 1.0, 5.0)]
    assert "| workloads | 1 | 100% |" in rates_table(rates)


def test_a_machine_is_graded_by_the_gpu_that_lost_most() -> None:
    cases = [case(0.9, lost_s=5.0), case(0.2, lost_s=50.0, starved_ratio=0.0)]

    assert graded(cases) == [Graded("workloads", "worker_waves", 0.2, True)]
    assert graded([case(0.9)._replace(suspicion=None)]) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_machines_of_each_generator_are_graded(family: str) -> None:
    kinds = FAMILIES[family].kinds[::6]
    some = graded(one for kind in kinds for one in cases_of(family, kind, 4))

    assert len(some) >= 3
    suspected = [one for one in some if one.probability >= 0.5]
    assert sum(one.is_starved for one in suspected) * 2 >= len(suspected)


def test_recorded_boards_are_graded() -> None:
    some = graded(recorded_cases())

    assert len(some) > 100
    assert precision(some) > 0.7


def test_the_page_shows_the_weights_of_the_product() -> None:
    page = DOCS / "how-sure.md"
    before = page.read_text(encoding="utf-8")

    assert terms_table() in before
    assert f"`input_probability` then is {PRIOR}" in before
    assert set(WEIGHTS) == set(TERMS)
    with pytest.raises(ValueError, match="'nothing'"):
        put("nothing", "text", page)
    assert page.read_text(encoding="utf-8") == before

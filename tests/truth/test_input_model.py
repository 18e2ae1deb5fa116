"""Specification of how the model of suspicion is fitted, and how it is held against truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gpumon.core.settings.input_model import CENTRES, SCALES, WEIGHTS
from gpumon.core.time.cycles import PauseShape
from gpumon.core.time.suspicion import Suspicion
from gpumon.core.verdict import LikelyCause, VerdictName
from tests.truth.input_model.cases import Case, cases_of
from tests.truth.input_model.fitting import fitted
from tests.truth.input_model.scored import (
    HARD_KINDS,
    Told,
    brier,
    by_machine,
    precision,
    recall,
    tables,
)
from tests.truth.worlds import (
    DEVELOPMENT_SEEDS,
    EVALUATION_SEEDS,
    KINDS,
    TRAINING_SEEDS,
)

TOLD = [
    Told(0.9, True, True), Told(0.6, False, True), Told(0.55, True, True),
    Told(0.2, True, True), Told(0.1, False, True), Told(0.0, True, False),
]  # fmt: skip


def case(probability: float | None, **more: Any) -> Case:
    suspicion = None if probability is None else Suspicion(probability, (LikelyCause.LATE_INPUT,))
    told: dict[str, Any] = {
        "kind": "worker_waves", "seed": 1, "minutes": 15.0, "gpu": 0, "period_s": 1.0,
        "pauses": 9, "lost_s": 10.0, "lost_ratio": 0.3, "verdict": VerdictName.PARTIAL,
        "suspicion": suspicion, "starved_ratio": 0.3, "accused_by": {},
    }  # fmt: skip
    return Case(**(told | more))


class TestTheFit:
    def test_finds_the_weights_that_made_the_answers(self) -> None:
        rng = np.random.default_rng(1)
        features = rng.normal(size=(20_000, 3))
        odds = 1.0 + 2.0 * features[:, 0] - 1.5 * features[:, 0] * features[:, 1]
        is_late = rng.random(20_000) < 1 / (1 + np.exp(-odds))

        model = fitted(("a", "b", "c"), features, is_late, np.ones(20_000), terms=3)

        assert set(model.weights) == {(), ("a",), ("a", "b")}
        assert model.weights["a",] / model.scales["a"] == pytest.approx(2.0, abs=0.15)
        both = model.weights["a", "b"] / (model.scales["a"] * model.scales["b"])
        assert both == pytest.approx(-1.5, abs=0.15)

    def test_of_the_table_that_is_kept_has_finite_weights_of_features_that_there_are(self) -> None:
        assert set(CENTRES) == set(SCALES) == set(PauseShape._fields)
        assert len(WEIGHTS) <= 120
        assert all(map(math.isfinite, WEIGHTS.values()))

    def test_is_made_on_other_worlds_than_it_is_judged_by(self) -> None:
        assert not {*TRAINING_SEEDS} & {*EVALUATION_SEEDS, *DEVELOPMENT_SEEDS}


class TestTheScore:
    def test_counts_who_is_accused_rightly_and_who_is_found(self) -> None:
        assert precision(TOLD, 0.5) == pytest.approx(2 / 3)
        assert recall(TOLD, 0.5) == pytest.approx(2 / 4)
        assert (precision(TOLD, 0.7), recall(TOLD, 0.7)) == (1.0, 1 / 4)

    def test_is_the_mean_square_of_what_was_told_and_was_so(self) -> None:
        graded = [one for one in TOLD if one.is_graded]

        expected = (0.1**2 + 0.6**2 + 0.45**2 + 0.8**2 + 0.1**2) / 5
        assert brier(graded) == pytest.approx(expected)

    def test_of_a_machine_is_that_of_the_gpu_that_lost_most(self) -> None:
        cases = [case(0.9, lost_s=5.0), case(0.2, gpu=1, lost_s=50.0, starved_ratio=0.0)]

        assert by_machine(cases) == [Told(0.2, True, True)]

    def test_of_a_gpu_that_lost_too_little_for_a_word_is_no_probability(self) -> None:
        (told,) = by_machine([case(0.9, lost_ratio=0.04, starved_ratio=0.0)])

        assert told == Told(0.0, False, False)

    def test_is_written_for_any_worlds_that_there_are(self) -> None:
        cases = [one for kind in ("worker_waves", "rounds") for one in cases_of(kind, 4)]

        said = tables(cases, None)

        assert "| per machine | 4 |" in said
        assert "| rounds | 2 | 0 |" in said


def test_the_hard_kinds_are_nine_that_there_are() -> None:
    assert len({*HARD_KINDS}) == 9
    assert {*HARD_KINDS} <= {*KINDS}


@pytest.mark.parametrize(("kind", "is_late"), [("shared_loader", True), ("many_gpus", False)])
def test_worlds_of_two_kinds_are_told_apart(kind: str, is_late: bool) -> None:
    """A short version of ``python -m tests.truth.input_model score``."""
    told = by_machine(one for seed in (1, 3, 5) for one in cases_of(kind, seed))
    graded = [one.probability for one in told if one.is_graded]

    assert len(graded) >= 5
    assert (sum(graded) / len(graded) > 0.8) if is_late else (sum(graded) / len(graded) < 0.3)

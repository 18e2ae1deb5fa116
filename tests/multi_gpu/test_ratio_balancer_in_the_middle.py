"""``RatioBalancer`` balances its own fit, whatever callbacks do during it.

Results are compared with one device: a change of the split changes none.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.keras.acts_in_the_middle import ACTS, Training, acting, fail
from tests.multi_gpu.later import middle_builders, multi_gpu
from tests.needs import in_make_truth

slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = pytest.mark.multi_gpu


@cache
def models(devices: int) -> tuple[Any, Any, list[Any]]:
    """The model, another to train in its middle, and the initial state of both."""
    model, other = middle_builders.made(devices)[1], middle_builders.made(devices)[1]
    return model, other, middle_builders.numbers(state_of(model, other))


def state_of(*models: Any) -> list[Any]:
    return [each for model in models for each in (*model.variables, *model.optimizer.variables)]


def new_run(devices: int, folder: Path) -> Training:
    """On one device, or balanced on two."""
    folder.mkdir()
    hooks = [multi_gpu.RatioBalancer(every=3, warm_up=1, verbose=0)] if devices > 1 else []
    (x, y), (u, v) = middle_builders.rows(), middle_builders.rows(seed=1)
    data = {"x": x, "y": y, "batch_size": middle_builders.BATCH}
    evaluated = {"x": u, "y": v, "batch_size": middle_builders.BATCH}
    model, other, values = models(devices)
    for variable, value in zip(state_of(model, other), values, strict=True):
        variable.assign(value)
    return Training(model, other, folder, data, data, evaluated, hooks)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param("an evaluation of another model with the same callbacks", marks=in_make_truth),
        "a fit of the same model at a batch's end",
        pytest.param("an exception of a callback, and a second fit", marks=in_make_truth),
    ],
)
def test_the_result_is_that_of_one_device(act: str, tmp_path: Path) -> None:
    def outcome(devices: int) -> Any:
        training = new_run(devices, tmp_path / str(devices))
        ACTS[act](training)
        return training.outcome()

    assert middle_builders.trains_alike(outcome, 2)


@pytest.fixture(scope="module")
def pair() -> list[Any]:
    return [slow.SlowTraining(0.0, 0.0, batch=120) for _ in range(2)]


@pytest.mark.alone
@pytest.mark.parametrize(
    "which", ["the same model", pytest.param("another that fails", marks=in_make_truth)]
)
def test_the_outer_fit_is_balanced_after_an_inner_one(which: str, pair: list[Any]) -> None:
    """The first device takes four times as long for a sample as the second."""
    training, other = (each.reset(4e-4, 1e-4) for each in pair)
    balancer = multi_gpu.RatioBalancer(every=5, warm_up=2, verbose=0)

    def train_inside() -> None:
        inner = training if which == "the same model" else other
        fails = [acting(fail)] if which == "another that fails" else []
        with suppress(ValueError):
            inner.fit(balancer, *fails, steps=4, batch_size=40)

    with pytest.warns(
        RuntimeWarning, match="not a fit inside .* give that one its own RatioBalancer"
    ):
        training.fit(balancer, acting(train_inside), steps=26)

    assert balancer.changes
    assert {sum(change.new) for change in balancer.changes} == {120}
    first, second = training.model.ratios
    assert first < second
    assert other.model.ratios == (1.0, 1.0)

"""A run whose input is really slow, beside a real daemon: the report names the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.truth.host.cells import Cell, reported_of
from tests.truth.host.conditions import CONDITIONS
from tests.truth.host.surroundings import NotHereError, cold_file
from tests.truth.host.work import AGAIN_BYTES, Stage

SECONDS = 4.0
NO_SERVER = 0
LEAST_RIGHT, MOST_WRONG = 0.5, 0.05
"""Of so few seconds: no one looks before the first tick, nor after the last."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with cold_file(tmp_path_factory.mktemp("cold"), AGAIN_BYTES) as file:
        yield Stage(file, NO_SERVER)


def quick() -> Iterator[Any]:
    """What is tried in CI; what computes is not tried beside what computes."""
    for name, condition in CONDITIONS.items():
        if condition.quick:
            yield pytest.param(name, marks=[pytest.mark.alone] * (condition.work == "compute"))


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("name", [*quick()])
def test_what_is_lost_has_the_reason_that_is_true(name: str, stage: Stage, tmp_path: Path) -> None:
    condition = CONDITIONS[name]
    try:
        reported = reported_of(Cell(name, condition.quick), stage, tmp_path, SECONDS)
    except NotHereError as reason:
        pytest.skip(str(reason))

    assert reported.lost_s > SECONDS / 3
    assert reported.right_s >= LEAST_RIGHT * reported.lost_s
    assert reported.wrong_s <= MOST_WRONG * reported.lost_s

"""Every phase that ``PhaseTagger`` says is as long as what happened below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.keras.conftest import framework, own_runtime_folder
from tests.truth.keras_cells import BACKENDS, CELLS, is_possible, run

__all__ = ["framework", "own_runtime_folder"]

PHASE_OF = {"input": "input_wait", "callback": "callbacks"}


def cells() -> list[Any]:
    return [
        pytest.param(backend, name, marks=getattr(pytest.mark, f"keras_{backend}"))
        for backend in BACKENDS
        for name, cell in CELLS.items()
        if cell.is_quick and is_possible(name, backend)
    ]


@pytest.mark.parametrize(("backend", "name"), cells())
class TestATrainingThatSomethingHoldsUp:
    @pytest.mark.measured
    def test_is_reported_as_it_was_in_every_phase(
        self, backend: str, name: str, framework: str, tmp_path: Path
    ) -> None:
        outcome = run(name, backend, tmp_path)

        assert outcome.missed == []
        assert (outcome.recorded_steps, outcome.steps_made) == (80, 80)
        cause = CELLS[name].cause
        if "hidden" in name:
            assert outcome.row("input_wait").reported_s < outcome.slept_s / 5
        else:
            assert outcome.row(PHASE_OF.get(cause, cause)).truth_s > 0.2 * outcome.wall_s

"""Messages in a training process, pinned: the line at the end of ``fit``, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpumon.core.phase import PHASES, TrainingPhase
from tests.golden_files import Chapters, golden_story
from trainer_hooks.batches import fixed_batches
from trainer_hooks.keras.fit_figures import FitFigures, closing_line
from trainer_hooks.prefetch import prefetch_to_device


def figures(**seconds: float) -> FitFigures:
    """A ``fit`` of ten seconds with that much time in each phase."""
    spent = {TrainingPhase(name): round(1e9 * value) for name, value in seconds.items()}
    return FitFigures(
        steps=300,
        wall_ns=10_000_000_000,
        median_ns=32_100_000.0,
        left_out=3,
        samples_per_second=996.4,
        phase_ns=tuple(spent.get(phase, 0) for phase in PHASES),
        is_asynchronous=False,
        has_daemon=True,
        run="resnet",
    )


def closing_lines() -> Chapters:
    waited = figures(train_step=5, input_wait=4.2)
    lines = {
        "it waited for input": waited,
        "without a daemon": waited._replace(has_daemon=False),
        "a run whose name a shell would split": waited._replace(run="my run; 2"),
        "the device may have worked meanwhile": waited._replace(is_asynchronous=True),
        "nothing is lost": figures(train_step=6, device_sync=3.6, input_wait=0.4),
        "a single step": figures(start_up=9)._replace(
            steps=1, median_ns=None, samples_per_second=None
        ),
        "quick steps, all counted": waited._replace(median_ns=9_994_000.0, left_out=0),
    }
    lines |= {f"nine seconds of {phase.value}": figures(**{phase.value: 9}) for phase in PHASES}
    return {title: closing_line(one) for title, one in lines.items()}


def refused(make: Callable[..., Any], *of: Any, **options: Any) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        list(make(*of, **options))
    return f"{caught.type.__name__}: {caught.value}"


def refusals() -> Chapters:
    rows = np.zeros(3)
    of_batches: list[tuple[Any, dict[str, Any]]] = [
        ((rows, rows), {"batch_size": 10, "multiple_of": 4}),
        ((rows, rows), {"batch_size": 3, "multiple_of": 4}),
        ((rows, rows), {"batch_size": True}),
        ((rows, rows), {"multiple_of": 0}),
        ((rows, rows), {"tail": "fill"}),
        ((rows, rows), {"reduction": "none"}),
        (iter([]), {"shuffle": True}),
        ((rows, np.zeros(4)), {}),
        (rows, {"tail": "pad"}),
        ({"x": [1, 2]}, {}),
        (iter([(rows, 1.0)]), {}),
        ([(rows, rows), (rows[:2], rows[:2]), (rows, rows)], {"batch_size": 3}),
    ]
    chapters = {
        f"fixed_batches of {type(data).__name__}, {options}": refused(
            fixed_batches, data, **{"batch_size": 4, **options}
        )
        for data, options in of_batches
    }
    for depth in (0, 1.5):
        chapters[f"prefetch_to_device, depth {depth}"] = refused(prefetch_to_device, [], depth)
    for data in ("rows.csv", (rows, rows), 3):
        chapters[f"prefetch_to_device of {type(data).__name__}"] = refused(prefetch_to_device, data)
    return chapters


@golden_story
def test_words_in_training_runs() -> Chapters:
    return {**closing_lines(), **refusals()}

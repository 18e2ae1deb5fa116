"""Twenty minutes of training runs that last seven seconds, on a clock that is moved by hand.

``python -m benchmarks.bench_short_runs`` does the same with real processes beside a real daemon.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.day import Day, day
from tests.fakenvml.generations import PRESENT_DRIVER
from tests.fakenvml.in_process import shown_to_this_process

PERIOD_S = 1.0
RUN_S = 7.0
AT_A_TIME = 4
RUNS_A_MINUTE = AT_A_TIME * 60 / RUN_S
MOST_OF_A_RUN = 150
"""Objects that stay of each run while none is forgotten yet: 40; all that led to it makes 490."""
MOST_AFTERWARDS = 60
"""... and once one is forgotten for each that comes: 15, which are the past of the GPUs."""


@pytest.fixture
def busy_day(fake_library: Path, tmp_path: Path) -> Iterator[Day]:
    control = tmp_path / "gpus.control"
    with (
        shown_to_this_process(fake_library, control, PRESENT_DRIVER, gpus=2 * AT_A_TIME) as fake,
        day(fake, tmp_path, period_s=PERIOD_S, run_s=RUN_S, at_a_time=AT_A_TIME) as one,
    ):
        yield one


def objects_a_run(one: Day, minutes: int) -> float:
    """How many more objects there are after so many minutes, by the runs of that time."""
    gc.collect()
    before = sys.getallocatedblocks()
    one.pass_seconds(60.0 * minutes)
    gc.collect()
    return (sys.getallocatedblocks() - before) / (minutes * RUNS_A_MINUTE)


@pytest.mark.soak
def test_leave_little_behind_and_nothing_once_the_first_are_forgotten(busy_day: Day) -> None:
    busy_day.pass_seconds(120.0)  # until what is kept of each second is full

    while_more_are_kept = objects_a_run(busy_day, 4)
    busy_day.pass_seconds(240.0)
    afterwards = objects_a_run(busy_day, 10)

    print(f"{while_more_are_kept:.0f} objects a run, then {afterwards:.0f}")
    assert busy_day.state is not None
    assert len(busy_day.state.runs) == 256
    assert sum(bool(run.gpu_uuids) for run in busy_day.state.runs) > 240
    assert while_more_are_kept < MOST_OF_A_RUN
    assert afterwards < MOST_AFTERWARDS

"""Hours of a daemon's life in seconds: nothing that it does in a tick stays behind.

``python -m benchmarks.bench_day`` does the same for a whole day at ten ticks a second.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from tests.builders.day import day, descriptors, threads
from tests.fakenvml.control import FakeNvml

HOUR_S = 3600.0
PERIOD_S = 5.0
RUN_S = 50.0
# 64 ended training runs and 256 reports are kept; these come to lie further and further apart, so
# that for a while each has training runs of its own to remember.
WARM_UP_S, WATCHED_S = 1.5 * HOUR_S, 1.75 * HOUR_S


def held() -> tuple[int, int, int]:
    gc.collect()
    return sys.getallocatedblocks(), descriptors(), threads()


def test_a_daemon_holds_after_hours_what_it_held_before(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    with day(fake_nvml, tmp_path, period_s=PERIOD_S, run_s=RUN_S) as one:
        one.pass_seconds(WARM_UP_S)  # until what is kept of the past is full
        before = held()
        one.pass_seconds(WATCHED_S)
        after = held()
        state = one.state

    assert state is not None
    for gpu in state.gpus:
        totals = gpu.totals
        assert totals.observed_ns / 1e9 == pytest.approx(WARM_UP_S + WATCHED_S, abs=2 * PERIOD_S)
        assert totals.busy_ns / totals.observed_ns == pytest.approx(0.7, abs=0.01)
        settled_ns = totals.busy_ns + sum(totals.idle_ns.values()) + totals.pending_ns
        assert settled_ns == totals.observed_ns
    assert state.runs[0].run != state.runs[-1].run
    assert after[1:] == before[1:]
    ticks = WATCHED_S / PERIOD_S
    assert after[0] - before[0] < ticks, "more than one object a tick stays behind"

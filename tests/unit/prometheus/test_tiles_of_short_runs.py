"""Short runs between two scrapes, from a monitor to the tiles of a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpumon.core.sample import ProcessSample
from tests.builders.gpu_time import (
    BOB,
    GPU_BUSY,
    GPU_IDLE,
    OBSERVED,
    RUN_BUSY,
    RUN_IDLE,
    USER_BUSY,
    USER_IDLE,
    Machine,
)
from tests.builders.monitor import ADA, STEP, WAIT
from tests.unit.prometheus.builders_promtool import Rhythm, Target, Value, always
from tests.unit.prometheus.test_fleet_rules import Fleet, tiles

pytestmark = pytest.mark.prometheus

LABELS = {
    OBSERVED: ("uuid",), GPU_BUSY: ("uuid",), GPU_IDLE: ("uuid", "cause"), RUN_BUSY: ("run",),
    RUN_IDLE: ("run", "cause"), USER_BUSY: ("user",), USER_IDLE: ("user", "cause"),
}  # fmt: skip
RHYTHM = Rhythm(15, 300, 10)
MINUTES = 26
SHORT_S = 3


def exported() -> dict[str, dict[tuple[Any, ...], list[float | None]]]:
    """By family and labels: the value after each second.

    Ada trains on GPU 0 all the time and waits for half of it. In each minute, Bob trains on an
    instance for three seconds.
    """
    machine = Machine(drained_every=4, names_users=True)
    families: dict[str, dict[tuple[Any, ...], list[float | None]]] = {name: {} for name in LABELS}
    machine.processes[0] = (ProcessSample(42, None, uid=ADA),)
    machine.ring("long", uid=ADA)
    for second in range(60 * MINUTES + 1):
        minute, in_minute = divmod(second, 60)
        is_short = 21 <= in_minute < 21 + SHORT_S
        phases = {"long": [(0.0, STEP), (0.5, WAIT)]}
        short = f"short-{minute}"
        if in_minute == 21:
            machine.ring(short, gpus=("1:0",), pid=43, uid=BOB, job=short)
            phases[short] = [(0.0, STEP)]
        if in_minute == 21 + SHORT_S:
            machine.end_ring(short)
        machine.processes[1] = (ProcessSample(43, None, uid=BOB),) if is_short else ()
        is_scraped = (second - RHYTHM.offset_s) % RHYTHM.scrape_s == 0
        machine.live(0.5, float(is_short), None, phases=phases, is_scraped=is_scraped)
        for name, rows in families.items():
            for labels, amount_ns in machine.laws.exported[name].items():
                rows.setdefault(labels, [None] * second).append(amount_ns / 1e9)
    return families


def at_second(values: list[float | None]) -> Value:
    return lambda second: values[round(second)]


def test_are_in_the_fleets_time_within_a_hundredth(tmp_path: Path) -> None:
    target = Target()
    target.has("gpumon_build_info", always(1), version="1.0")
    for name, rows in exported().items():
        for labels, values in rows.items():
            target.has(name, at_second(values), **dict(zip(LABELS[name], labels, strict=True)))
    fleet = Fleet(MINUTES, (target,))
    span = 20
    short = 'run:gpumon_training_gpu_busy_seconds:increase5m{run=~"short-.*"}'
    fleet.near(MINUTES - 1, tiles(short, span), span * SHORT_S)
    bobs = 'user:gpumon_user_gpu_busy_seconds:increase5m{user="bob"}'
    fleet.near(MINUTES - 1, tiles(bobs, span), span * SHORT_S)
    busy = tiles("gpumon:gpu_busy_seconds:increase5m", span)
    fleet.near(MINUTES - 1, busy, span * (30 + SHORT_S))
    for lost in ("run_cause:gpumon_training", "user_cause:gpumon_user"):
        sum_of_all = tiles(f"{lost}_gpu_lost_seconds:increase5m", span)
        of_gpus = tiles("cause:gpumon_gpu_lost_seconds:increase5m", span)
        fleet.near(MINUTES - 1, f"{sum_of_all} / {of_gpus}", 1, within_ratio=1e-4)
    for by in ("run:gpumon_training", "user:gpumon_user"):
        sum_of_all = tiles(f"{by}_gpu_busy_seconds:increase5m", span)
        fleet.near(MINUTES - 1, f"{sum_of_all} / {busy}", 1, within_ratio=1e-4)

    assert fleet.failures(RHYTHM, tmp_path) == ""

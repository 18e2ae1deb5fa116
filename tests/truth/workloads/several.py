"""Kinds with several jobs, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.truth.workloads.draws import Draws
from tests.truth.workloads.recipes import healthy, seldom_slow, wave_of, waves
from tests.truth.workloads.training import TrainingPlan, TrainingRun, one_after_the_other
from tests.truth.workloads.truth import GpuTruth

_MIN_MS: Final = 60_000
"""A shorter job is left out."""


def several_jobs(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Two to four training runs in turn, some of them starved."""
    count = draws.integer(2, 4)

    def waving(draws: Draws) -> TrainingPlan:
        wave = wave_of(draws, draws.log_uniform(2_000, 12_000), draws.log_uniform(2_000, 12_000))
        return waves(draws, wave, spread=draws.uniform(0.002, 0.01))

    def plan() -> TrainingPlan:
        return draws.one_of((healthy, waving, seldom_slow))(draws)

    lengths_ms = [draws.uniform(0.5, 1.5) * duration_ms / count for _ in range(count)]
    return _in_turn(draws, plan, lengths_ms, (10_000, 900_000), duration_ms)


def sweep(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Short healthy runs in turn, each with its own start: breaks, no waits."""
    usual = healthy(draws)
    length_ms = draws.log_uniform(70_000, 600_000)
    lengths_ms = [draws.uniform(0.8, 1.2) * length_ms for _ in range(duration_ms // 50_000)]
    return _in_turn(draws, lambda: usual, lengths_ms, (2_000, 30_000), duration_ms)


def _in_turn(
    draws: Draws,
    plan: Callable[[], TrainingPlan],
    lengths_ms: list[float],
    between_ms: tuple[float, float],
    duration_ms: int,
) -> tuple[GpuTruth, ...]:
    """Training runs that end after these times, as far as time allows."""
    truths: list[GpuTruth] = []
    at_ms = draws.integer(0, 30_000)
    for length_ms in lengths_ms:
        until_ms = min(duration_ms, at_ms + int(length_ms))
        if truths and until_ms - at_ms < _MIN_MS:
            break
        run = TrainingRun(draws, replace(plan(), shares=(1.0,)), at_ms, until_ms)
        truths += run.truths()
        at_ms = run.ends_ms + int(draws.log_uniform(*between_ms))
    return (one_after_the_other(truths),)

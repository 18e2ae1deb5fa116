"""Tests of gpumon_training_hanging."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.state import RunState
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders.state import S, StoppedClock, monitor_state, run

FAMILY = "gpumon_training_hanging"
SILENCE = RunSilence(since_ns=1, phase=TrainingPhase.INPUT_WAIT, silent_ns=40 * S)
HANGS = SILENCE._replace(hanging_from_ns=31 * S)


def scraped(*runs: RunState, later_s: int = 0) -> list[str]:
    clock = StoppedClock()
    exporter = MetricsExporter(clock=clock, version="0")
    exporter.publish(monitor_state(runs=runs))
    clock.now_ns += later_s * S
    lines = exporter.render()[0].decode().splitlines()
    return [line for line in lines if line.startswith(FAMILY)]


class TestARun:
    @pytest.mark.parametrize(
        ("state", "value"),
        [
            ({"silence": HANGS}, "1.0"),
            ({"silence": HANGS._replace(is_first_batch=True)}, "1.0"),
            ({"silence": SILENCE}, "0.0"),
            ({"silence": SILENCE._replace(is_first_batch=True)}, "0.0"),
            ({"silence": None}, "0.0"),
            ({"silence": None, "suspended_since_ns": 7 * S}, "0.0"),
        ],
        ids=["hanging", "waiting too long for a first batch", "silent", "waiting for a first batch",
             "working", "suspended"],
    )  # fmt: skip
    def test_hangs_only_if_it_is_silent_for_too_long(
        self, state: dict[str, Any], value: str
    ) -> None:
        assert scraped(run("resnet", **state)) == [f'{FAMILY}{{run="resnet"}} {value}']

    def test_does_not_hang_beside_one_that_does(self) -> None:
        assert scraped(run("a", silence=HANGS), run("b", pid=4243)) == [
            f'{FAMILY}{{run="a"}} 1.0',
            f'{FAMILY}{{run="b"}} 0.0',
        ]


class TestASeries:
    def test_is_zero_after_its_run_has_ended(self) -> None:
        assert scraped(run(alive=False, silence=None)) == [f'{FAMILY}{{run="resnet"}} 0.0']

    def test_ends_when_ticks_stop(self) -> None:
        assert scraped(run(silence=HANGS), later_s=600) == []

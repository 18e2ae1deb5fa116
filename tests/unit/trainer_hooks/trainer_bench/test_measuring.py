"""Specification of measuring: why several GPUs do more than each alone, and what a bar is."""

from __future__ import annotations

import io

import pytest

from tests.command_line import Terminal
from trainer_hooks.trainer_bench.measuring import Measured, progress_bar, why_above_alone


def run(*batches: int, speed: float, busy_part: float | None = None) -> Measured:
    """A hundred steps."""
    samples = 100 * sum(batches)
    seconds = samples / speed
    busy = None if busy_part is None else (busy_part * seconds,) * len(batches)
    gpus = tuple(f"GPU:{at}" for at in range(len(batches)))
    return Measured(gpus, batches, samples, seconds, 100, busy)


def test_nothing_is_said_of_a_sum_that_is_not_reached() -> None:
    assert why_above_alone(run(64, 64, speed=199), [run(64, speed=100)] * 2) is None


def test_larger_parts_come_before_any_other_cause() -> None:
    alone = [run(64, speed=100, busy_part=0.5), run(32, speed=100, busy_part=0.5)]

    why = why_above_alone(run(64, 64, speed=210, busy_part=0.9), alone)

    assert why == (
        "5.0% above what they did alone, because larger parts are worked off faster: GPU:1 had "
        "32 samples a step alone and has 64 here"
    )


def test_a_cheaper_update_is_told_in_milliseconds() -> None:
    alone = [run(100, speed=1000, busy_part=0.9)] * 2  # steps of 100 ms

    why = why_above_alone(run(100, 100, speed=2100, busy_part=0.95), alone)

    assert why is not None
    assert "for 4.8 ms (the update of the weights), where one alone needs up to 10.0 ms" in why


def test_where_nobody_can_tell_the_runs_are_blamed() -> None:
    why = why_above_alone(run(64, 64, speed=202), [run(64, speed=100)] * 2)

    assert why == (
        "1.0% above what they did alone, which is by how much runs differ: longer ones "
        "(--seconds) tell"
    )


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_bar_is_shown_on_a_terminal_only_and_goes_to_stderr(
    kind: type[io.StringIO], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = kind()
    monkeypatch.setattr("sys.stderr", stderr)

    with progress_bar("GPU:0 [64]", 10.0) as advance:
        advance(5.0)

    assert ("GPU:0 [64]" in stderr.getvalue()) is stderr.isatty()
    assert stderr.isatty() or stderr.getvalue() == ""
    assert capsys.readouterr().out == ""

"""Specification of the one line at the end of ``fit``."""

from __future__ import annotations

from gpumon.core.phase import PHASES, TrainingPhase
from trainer_hooks.keras.fit_figures import FitFigures, closing_line


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


class TestTheLine:
    def test_says_how_fast_what_took_the_time_and_what_to_do_next(self) -> None:
        assert closing_line(figures(train_step=5, input_wait=4.2)) == (
            "gpumon: 300 steps in 10.0 s, 32.1 ms a step (median, 3 warm-up steps left out), "
            "996 samples/s; 42 % of the time waiting for input: `gpumon report --run resnet` says "
            "what that cost the GPUs and what to change first"
        )

    def test_asks_for_a_daemon_where_there_is_none(self) -> None:
        without = figures(train_step=5, checkpoint=4)._replace(has_daemon=False)

        assert closing_line(without).endswith(
            "; 40 % of the time writing checkpoints: train beside `gpumon serve`, "
            "and `gpumon report` says what to change first"
        )

    def test_names_the_run_as_a_shell_takes_it(self) -> None:
        named = figures(input_wait=8)._replace(run="my run; 2")

        assert "`gpumon report --run 'my run; 2'` says" in closing_line(named)

    def test_asks_for_nothing_where_nothing_is_lost(self) -> None:
        assert closing_line(figures(train_step=6, device_sync=3.6, input_wait=0.4)).endswith(
            "; 96 % of the time in training steps, nothing else above 5 %"
        )

    def test_does_not_call_a_hosts_wait_the_devices(self) -> None:
        asynchronous = figures(train_step=1, input_wait=8)._replace(is_asynchronous=True)

        assert "the device may have been busy meanwhile" in closing_line(asynchronous)

    def test_leaves_out_what_is_not_known(self) -> None:
        short = figures(start_up=9)._replace(steps=1, median_ns=None, samples_per_second=None)

        assert closing_line(short) == "gpumon: 1 step in 10.0 s; 90 % of the time starting up"

    def test_is_one_line_whatever_took_the_time(self) -> None:
        for phase in TrainingPhase:
            assert "\n" not in closing_line(figures(**{phase.value: 9}))

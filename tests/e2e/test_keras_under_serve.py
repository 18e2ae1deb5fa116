"""One training script, three Keras backends, a real daemon: the report names what held it up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import FollowingDaemon
from tests.e2e.runs_under_serve import Watched, WatchedRuns, training

CAUSE_OF = {
    "input": "input_wait",
    "checkpoint": "checkpoint",
    "validation": "validation",
    "callback": "callbacks",
}
OF_KNOWN_WIDTH = ("--passes", "1400")
"""About as much compute, without the steps that are tried to find how wide that is."""
SLOW_BESIDES = ("--steps", "48", *OF_KNOWN_WIDTH, "--slow-seconds", "12")
AMOUNT_OF = {
    "input": ("--steps", "30", "--latency-ms", "90"),
    "checkpoint": SLOW_BESIDES,
    "validation": SLOW_BESIDES,
    "callback": SLOW_BESIDES,
}
"""About 45 ms of compute a step, and what is slow besides: twelve seconds, more than a busy machine
takes to start; the input partly hidden where a backend fetches it while it computes."""


def pairs() -> list[Any]:
    """A slow input on every backend, and each other cause on one of those that start soonest."""
    pairs = [
        ("jax", "input"),
        ("jax", "checkpoint"),
        ("tensorflow", "input"),
        ("torch", "input"),
        ("torch", "validation"),
        ("torch", "callback"),
    ]
    return [
        pytest.param(pair, marks=getattr(pytest.mark, f"keras_{pair[0]}"), id="-".join(pair))
        for pair in pairs
    ]


def trained(daemon: FollowingDaemon, backend: str, *words: str) -> dict[str, Any]:
    environ = {"KERAS_BACKEND": backend, "GPUMON_GPUS": "0"}
    with training(daemon, "keras_training", "slow", *words, **environ) as one:
        return one.result()


@pytest.fixture(scope="module", params=pairs())
def watched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """A training run that something holds up, watched from its beginning to its end."""
    backend, slow = request.param
    with FollowingDaemon(tmp_path_factory.mktemp(f"{backend}-{slow}")) as daemon:
        result = trained(daemon, backend, "--slow", slow, *AMOUNT_OF[slow])
        report = daemon.settled_report()
        found = Watched(f"keras/{backend}", CAUSE_OF[slow], result, report, 0)
        found.waited_s = result["idle_seconds"][slow]
        yield found


class TestAKerasTrainingThatSomethingHoldsUp(WatchedRuns):
    def test_is_called_starved_of_input_or_stalled(self, watched: Watched) -> None:
        verdict = "starved" if watched.cause == "input_wait" else "stalled"

        assert (watched.gpu["verdict"], watched.run["run"]) == (verdict, "slow")

    def test_is_reported_first_what_that_was(self, watched: Watched) -> None:
        """Beside how long it took to start, which is up to how busy this machine is."""
        causes = [advice["cause"] for advice in watched.advice]

        assert next(cause for cause in causes if cause != "start_up") == watched.cause


@pytest.mark.keras_jax
class TestATrainingOfSeveralStepsAnExecution:
    @pytest.mark.measured
    def test_loses_to_its_input_what_its_sleeps_took_and_says_that_this_is_an_estimate(
        self, tmp_path: Path
    ) -> None:
        words = ("--slow", "input", "--steps", "60", *OF_KNOWN_WIDTH, "--latency-ms", "50")
        with FollowingDaemon(tmp_path) as daemon:
            result = trained(daemon, "jax", *words, "--steps-per-execution", "10")
            report = daemon.settled_report()

        (gpu,) = report["gpus"]
        within_s = 0.02 * result["wall_seconds"] + report["period_seconds"]
        assert gpu["idle_by_cause"]["input_wait"] == pytest.approx(
            result["idle_seconds"]["input"], abs=within_s
        )
        assert [note for note in report["notes"] if "are gross" in note]

"""One training script, three Keras backends, a real daemon: the report names the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import FollowingDaemon
from tests.e2e.runs_under_serve import Watched, WatchedRuns, training
from tests.needs import in_make_truth

CAUSE_OF = {"input": "input_wait", "checkpoint": "checkpoint"}
AMOUNT_OF = {
    "input": ("--steps", "30", "--latency-ms", "90"),
    "checkpoint": ("--steps", "48", "--passes", "1400", "--slow-seconds", "12"),
}
"""About 45 ms of compute a step, and twelve slow seconds, more than a busy machine takes to start;
the input is partly hidden where a backend fetches it while it computes."""


def pairs() -> list[Any]:
    """A slow input on every backend, and another cause on the one that starts soonest."""
    pairs = [
        ("jax", "input"),
        ("jax", "checkpoint"),
        ("tensorflow", "input"),
        ("torch", "input"),
    ]
    return [
        pytest.param(
            pair,
            marks=[
                getattr(pytest.mark, f"keras_{pair[0]}"),
                *([] if pair[1] == "input" else [in_make_truth]),
            ],
            id="-".join(pair),
        )
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
    """A training run that something delays, watched from its beginning to its end."""
    backend, slow = request.param
    with FollowingDaemon(tmp_path_factory.mktemp(f"{backend}-{slow}")) as daemon:
        result = trained(daemon, backend, "--slow", slow, *AMOUNT_OF[slow])
        report = daemon.settled_report()
        found = Watched(f"keras/{backend}", CAUSE_OF[slow], result, report, 0)
        found.waited_s = result["idle_seconds"][slow]
        yield found


class TestAKerasRunThatSomethingDelays(WatchedRuns):
    def test_is_starved_of_input_or_stalled(self, watched: Watched) -> None:
        verdict = "starved" if watched.cause == "input_wait" else "stalled"

        assert (watched.gpu["verdict"], watched.run["run"]) == (verdict, "slow")

    def test_has_its_cause_first_in_the_advice(self, watched: Watched) -> None:
        """After the start, whose length depends on how busy this machine is."""
        causes = [advice["cause"] for advice in watched.advice]

        assert next(cause for cause in causes if cause != "start_up") == watched.cause

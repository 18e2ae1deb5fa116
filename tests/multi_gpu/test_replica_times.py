"""The measured time of each device, compared with the times that the devices record themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.imported_later import ImportedLater
from tests.needs import in_make_truth

slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = pytest.mark.multi_gpu

BATCH, STEPS = 60, 6


def timed(*sample_seconds: float, **compiled: Any) -> Any:
    """A training run with timed replicas, after its steps."""
    training = slow.SlowTraining(*sample_seconds, batch=BATCH, **compiled)
    training.model.time_replicas()
    return training.fit(steps=STEPS)


def true_seconds(training: Any, replica: int) -> list[float]:
    """How long a device was busy in each step, from its first pass to its last."""
    spans = [span for span in training.devices.spans if span.replica == replica]
    pairs = zip(spans[::2], spans[1::2], strict=True)
    return [backward.ended_s - forward.began_s for forward, backward in pairs]


@pytest.mark.alone
class TestTheTimesOfADevice:
    @pytest.mark.measured
    def test_are_its_own_whichever_finishes_first(self) -> None:
        training = timed(1e-3, 1e-4, 5e-4)

        times = training.model.replica_times()
        assert [step.samples for step in times] == [(20, 20, 20)] * STEPS
        for replica in range(3):
            beyond = [
                step.busy_seconds[replica] - true
                for step, true in zip(times, true_seconds(training, replica), strict=True)
            ]
            assert min(beyond) > -1e-4
            assert sorted(beyond)[len(beyond) // 2] < 6e-3

    @in_make_truth
    @pytest.mark.measured
    def test_are_its_own_in_eager_mode_where_devices_take_turns(self) -> None:
        training = timed(4e-4, 2e-3, run_eagerly=True)

        quick, late = (true_seconds(training, replica) for replica in (0, 1))
        times = training.model.replica_times()
        assert all(t.busy_seconds[0] >= q - 1e-4 for t, q in zip(times, quick, strict=True))
        assert all(t.busy_seconds[1] >= q - 1e-4 for t, q in zip(times, late, strict=True))
        # The second device starts after the first, so none of the first one's time is in its own.
        apart = sorted(t.busy_seconds[1] - t.busy_seconds[0] for t in times)[STEPS // 2]
        assert apart == pytest.approx(np.median(late) - np.median(quick), abs=0.03)


class TestTimes:
    def test_are_returned_once_and_at_most_64(self) -> None:
        training = slow.SlowTraining(1e-5, 1e-5, batch=BATCH)
        assert training.model.replica_times() == ()

        training.model.time_replicas()
        training.fit(steps=70)

        assert len(training.model.replica_times()) == 64
        assert training.model.replica_times() == ()

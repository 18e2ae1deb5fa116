"""How long each device takes for its part, held against what the devices noted themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.imported_later import ImportedLater
from tests.multi_gpu.later import b

slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = pytest.mark.multi_gpu

BATCH, STEPS = 60, 6


class Truth:
    """What each device was busy with in each step, from its first pass to its last."""

    def __init__(self, devices: Any) -> None:
        self._devices = devices

    def seconds_of(self, replica: int) -> list[float]:
        spans = [span for span in self._devices.spans if span.replica == replica]
        pairs = zip(spans[::2], spans[1::2], strict=True)
        return [backward.ended_s - forward.began_s for forward, backward in pairs]


def rows(steps: int = STEPS) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH * steps, 32)).astype("float32")
    return x, random.integers(0, 10, BATCH * steps)


def split(sample_seconds: Sequence[float], **compiled: Any) -> tuple[Any, Any]:
    devices = slow.SlowDevices(sample_seconds)
    names = [f"CPU:{number}" for number in range(1, 1 + len(sample_seconds))]
    model = b.parallel(slow.slow_classifier(devices), devices=names, ratios=None)
    model.compile("sgd", "sparse_categorical_crossentropy", **compiled)
    return model, devices


def fit(model: Any, *, steps: int = STEPS) -> None:
    x, y = rows(steps)
    model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)


@pytest.mark.alone
@pytest.mark.parametrize("sample_seconds", [(2e-4, 1e-3), (1e-3, 1e-4, 5e-4)])
class TestTheTimesOfADevice:
    @pytest.mark.measured
    def test_are_its_own_whoever_is_done_first(self, sample_seconds: tuple[float, ...]) -> None:
        model, devices = split(sample_seconds)
        model.time_replicas()

        fit(model)

        told = model.replica_times()
        assert [step.samples for step in told] == [
            (BATCH // len(sample_seconds),) * len(told[0][0])
        ] * STEPS
        for replica in range(len(sample_seconds)):
            beyond = [
                step.busy_seconds[replica] - true
                for step, true in zip(told, Truth(devices).seconds_of(replica), strict=True)
            ]
            assert min(beyond) > -1e-4
            assert sorted(beyond)[len(beyond) // 2] < 6e-3


class TestTimes:
    @pytest.mark.measured
    @pytest.mark.alone
    def test_are_told_eagerly_too_where_the_devices_take_turns(self) -> None:
        model, devices = split((4e-4, 2e-3), run_eagerly=True)
        model.time_replicas()

        fit(model)

        quick, late = (Truth(devices).seconds_of(replica) for replica in (0, 1))
        told = model.replica_times()
        assert all(t.busy_seconds[0] >= q - 1e-4 for t, q in zip(told, quick, strict=True))
        assert all(t.busy_seconds[1] >= q - 1e-4 for t, q in zip(told, late, strict=True))
        # As the slow device has its turn second, none of the first one's time is in its own.
        apart = sorted(t.busy_seconds[1] - t.busy_seconds[0] for t in told)[STEPS // 2]
        assert apart == pytest.approx(np.median(late) - np.median(quick), abs=0.03)

    def test_are_those_since_they_were_asked_for_and_told_once(self) -> None:
        model, _ = split((1e-5, 1e-5))
        fit(model)
        assert model.replica_times() == ()

        model.time_replicas()
        fit(model, steps=70)

        assert len(model.replica_times()) == 64
        assert model.replica_times() == ()

    def test_change_no_result(self) -> None:
        (timed, _), (bare, _) = split((1e-5, 1e-5)), split((1e-5, 1e-5))
        timed.time_replicas()
        fit(timed)
        fit(bare)

        for one, other in zip(timed.get_weights(), bare.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)

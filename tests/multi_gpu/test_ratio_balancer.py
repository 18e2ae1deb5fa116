"""``RatioBalancer`` finds the best split on devices of known speed: they sleep."""

from __future__ import annotations

import threading
import time
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import builders as k
from tests.multi_gpu.later import builders, multi_gpu
from tests.needs import in_make_truth

slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = pytest.mark.multi_gpu

BATCH = 600
FAST, SLOW = 1 / 7_500, 1 / 5_000
"""Seconds per sample: an even batch takes 40 and 60 ms, the best split 48 ms on both.

Long enough that the milliseconds of TensorFlow's own threads matter little.
"""

CHECKS: dict[str, Any] = {"every": 8, "warm_up": 3, "dead_band": 0.005, "verbose": 0}
"""A narrow dead band: timing errors of a shared machine come on top of it."""


@cache
def training_over(devices: int) -> Any:
    return slow.SlowTraining(*[0.0] * devices, batch=BATCH)


def training_on(*sample_seconds: float) -> Any:
    """An untrained one; all with as many devices share one traced step."""
    return training_over(len(sample_seconds)).reset(*sample_seconds)


def new_balancer(**arguments: Any) -> Any:
    return multi_gpu.RatioBalancer(**{**CHECKS, **arguments})


@pytest.mark.alone
@pytest.mark.measured
class TestUnequalDevices:
    @pytest.mark.parametrize(
        ("sample_seconds", "steps"),
        [
            ((FAST, SLOW), 34),
            pytest.param((1 / 2_000, 1 / 6_000, 1 / 4_000), 46, marks=in_make_truth),
        ],
    )
    def test_are_balanced_from_equal_parts(
        self, sample_seconds: tuple[float, ...], steps: int
    ) -> None:
        balancer, training = new_balancer(), training_on(*sample_seconds)
        training.fit_undisturbed(balancer, steps=steps)

        assert 1 <= len(balancer.changes) <= 10
        assert training.part_of_the_best_speed() >= 0.98

    @in_make_truth
    @pytest.mark.parametrize(("slow_from", "steps"), [(15, 60), (33, 78)])
    def test_are_balanced_again_where_one_slows_down(self, slow_from: int, steps: int) -> None:
        """At step 15 the first change, made at step 11, is still being measured."""
        balancer, training = new_balancer(), training_on(FAST, SLOW)

        def slow_down(step: int) -> None:
            if step == slow_from:
                training.devices.sample_seconds = (2 * FAST, SLOW)

        training.fit_undisturbed(balancer, slow.each_step(slow_down), steps=steps)

        assert any(change.step > slow_from for change in balancer.changes)
        assert len(balancer.changes) <= 10
        assert training.part_of_the_best_speed() >= 0.98

    def test_are_balanced_over_epochs_and_fits_with_smaller_last_batches(self) -> None:
        balancer, training = new_balancer(every=4), training_on(FAST, SLOW)
        for _ in range(4):
            training.fit(balancer, epochs=2, steps=3, more=77)

        changes = balancer.changes
        assert len(changes) >= 1
        assert {sum(change.new) for change in changes} == {BATCH}
        assert all(one.new == other.old for one, other in pairwise(changes))
        assert training.model.ratios[0] / BATCH == pytest.approx(0.6, abs=0.015)


@in_make_truth
@pytest.mark.alone
@pytest.mark.measured
def test_equal_devices_are_left_alone() -> None:
    balancer = new_balancer(dead_band=0.01)
    # Long steps: few hold-ups show.
    training = training_on(2 * SLOW, 2 * SLOW).fit(balancer, steps=32)

    assert balancer.changes == ()
    assert training.model.ratios == (1, 1)


class TestMemoryLimits:
    @pytest.mark.alone
    def test_apply_from_the_first_step_on(self) -> None:
        balancer = new_balancer(max_samples={"CPU:1": 320, "cpu:2": None})
        training = training_on(FAST, SLOW).fit(balancer, steps=13)
        assert max(training.devices.samples_of(0)) == 320
        assert training.counts() == (320, 280)

        limited = new_balancer(max_samples=[None, 250])
        even = training_on(0.0, 0.0).fit(limited, steps=4)
        assert [change.step for change in limited.changes] == [0]
        assert limited.changes[0].reason == "CPU:2 holds 250 samples"
        assert even.devices.samples_of(1) == [250] * 4

    def test_apply_from_the_second_step_on_for_a_stream(self) -> None:
        balancer, training = new_balancer(max_samples=[None, 250]), training_on(0.0, 0.0)
        batch = training.rows(1)
        stream = ((batch["x"], batch["y"]) for _ in range(4))
        training.model.fit(stream, steps_per_epoch=4, verbose=0, callbacks=[balancer])

        assert training.devices.samples_of(1) == [300] + [250] * 3

    def test_gpus_that_cannot_hold_the_batch_are_refused_before_the_first_step(self) -> None:
        training = training_on(FAST, SLOW)

        with pytest.raises(ValueError, match=r"600 .* 500 \(CPU:1 300, CPU:2 200\)"):
            training.fit(new_balancer(max_samples=[300, 200]), steps=4)

        assert training.devices.spans == []


@pytest.mark.alone
class TestAChange:
    @pytest.mark.measured
    def test_is_an_event_and_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        balancer = new_balancer(verbose=1)
        training_on(FAST, SLOW).fit(balancer, steps=12)

        (first,) = balancer.changes
        assert (first.step, first.old) == (11, (300, 300))
        assert first.expected_gain == pytest.approx(0.25, abs=0.05)
        assert first.reason.startswith("CPU:2 is slowest")
        line = capsys.readouterr().out
        assert line == f"gpumon: {first}\n"
        assert f"{first.new[0]}:{first.new[1]} from step 11" in line

    def test_does_not_change_the_gradient(self) -> None:
        balancer = new_balancer(every=3)
        bare = training_on(0.0, 0.0).fit(steps=12).model.get_weights()
        balanced = training_on(FAST, SLOW).fit(balancer, steps=12).model.get_weights()

        assert balancer.changes
        assert builders.furthest(balanced, bare) <= 1e-6

    @pytest.mark.measured
    def test_is_counted_in_the_ring(self) -> None:
        training, balancer, tagger = training_on(FAST, SLOW), new_balancer(), k.tagger(gpus=[0, 1])
        training.fit(balancer, tagger, steps=12)

        assert k.facts().ratio_changes == len(balancer.changes) >= 1
        reported = tuple(round(BATCH * k.facts().shares[gpu]) for gpu in ("0", "1"))
        assert reported == training.counts()
        assert k.recorded_steps() == 12
        # The first step may be traced, and is no train_step then.
        assert k.phase_ns()["train_step"] / 1e9 >= sum(training.devices.step_seconds()[1:])


@pytest.mark.alone
class TestADaemonsCounters:
    CLAIMED = (1e-5, 2e-5)
    """Busy seconds of a sample, as reported by the daemon; the devices are equally fast."""

    @pytest.fixture(autouse=True)
    def gpus_of_this_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GPUMON_GPUS", "3,GPU-b")

    def daemon_of(self, training: Any, folder: Any) -> Any:
        """Counts, after each step, what it claims that the GPUs were busy."""
        daemon = FakeDaemon(folder)
        daemon.document["period_ns"] = 10_000_000
        busy, began_s = [0.0, 0.0], time.monotonic()

        def count(step: int) -> None:
            for gpu, uuid in enumerate(("GPU-a", "GPU-b12")):
                busy[gpu] += self.CLAIMED[gpu] * training.devices.samples_of(gpu)[-1]
                observed = time.monotonic() - began_s
                daemon.counts(3 + gpu, uuid, observed_s=observed, busy_s=busy[gpu])

        return slow.each_step(count)

    @pytest.mark.measured
    def test_balance_the_devices(self, tmp_path: Any) -> None:
        balancer, training = new_balancer(source="gpumon"), training_on(SLOW / 4, SLOW / 4)
        training.fit(self.daemon_of(training, tmp_path), balancer, steps=90)

        assert 1 <= len(balancer.changes) <= 10
        first, second = training.counts()
        assert first / second == pytest.approx(2.0, rel=0.03)

    def test_are_not_used_by_default(self, tmp_path: Any) -> None:
        # Devices that other work holds up now and then, and a daemon that claims a quarter.
        balancer, training = new_balancer(dead_band=0.1), training_on(SLOW / 2, SLOW / 2)
        training.fit(self.daemon_of(training, tmp_path), balancer, steps=16)

        assert balancer.changes == ()

    def test_are_replaced_by_replica_clocks_without_a_daemon(self) -> None:
        balancer = new_balancer(source="gpumon")
        training = training_on(FAST, SLOW).fit(balancer, steps=12)

        assert training.counts()[0] > 340


class TestATrainingRunThatCannotBeBalanced:
    @in_make_truth
    def test_is_left_alone_in_eager_mode(self) -> None:
        balancer = new_balancer(every=1)
        training = slow.SlowTraining(FAST, SLOW, batch=BATCH, run_eagerly=True)

        with pytest.warns(RuntimeWarning, match="nothing with run_eagerly"):
            training.fit(balancer, steps=3)

        assert balancer.changes == ()

    def test_is_checked_every_n_steps_in_the_training_thread(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Keras calls a callback from other threads where each batch ends."""
        training, balancer = training_on(0.0, 0.0), new_balancer(every=10, warm_up=3, dead_band=0.9)
        checked_at: list[int] = []
        threads: set[int] = set()
        replica_times = training.model.replica_times

        def noted() -> Any:
            checked_at.append(balancer._step)
            threads.add(threading.get_ident())
            return replica_times()

        monkeypatch.setattr(training.model, "replica_times", noted)
        training.fit(balancer, steps=25)

        assert checked_at == [0, 13, 23]
        assert threads == {threading.get_ident()}


class TestWrongArguments:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ({"every": 0}, "every must be a whole number of steps, 1 or more, not 0"),
            ({"every": 2.5}, "every must be a whole number"),
            ({"warm_up": -1}, "warm_up must be a whole number of steps, 0 or more"),
            ({"source": "nvml"}, "source must be one of auto, replicas, gpumon, not 'nvml'"),
            ({"dead_band": 1}, "dead_band must be 0 or more and below 1"),
        ],
    )
    def test_are_refused(self, arguments: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            new_balancer(**arguments)

    def test_include_limits_that_do_not_match_the_devices(self) -> None:
        model = training_on(FAST, SLOW).model
        for limits, sentence in (
            ({"GPU:0": 5}, "max_samples names GPU:0, and the model is split over CPU:1, CPU:2"),
            ([5], "1 limits for 2 devices"),
            (5, "max_samples must have a limit for each device, and is 5"),
            ([5, 0], "whole numbers, 1 or more, not 0"),
        ):
            with pytest.raises(ValueError, match=sentence):
                new_balancer(max_samples=limits).set_model(model)

    def test_include_a_model_on_one_device(self) -> None:
        model = builders.dense()
        model.compile("sgd", "sparse_categorical_crossentropy")

        with pytest.raises(ValueError, match="multi_gpu_model, and Sequential"):
            model.fit(*builders.rows()[:2], verbose=0, callbacks=[new_balancer()])


def test_a_balancer_listed_as_its_class_is_refused() -> None:
    with pytest.raises(TypeError, match=r"write RatioBalancer\(\) instead"):
        training_on(FAST, SLOW).fit(multi_gpu.RatioBalancer, steps=4)

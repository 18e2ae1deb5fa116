"""``RatioBalancer`` on devices whose speeds are known, for they sleep: it finds the best split."""

from __future__ import annotations

import threading
import time
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.imported_later import ImportedLater
from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import b as k
from tests.multi_gpu.later import b, multi_gpu

slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = pytest.mark.multi_gpu

BATCH = 600
FAST, SLOW = 1 / 7_500, 1 / 5_000
"""Seconds of a sample: an even batch takes 40 and 60 ms, the best split 48 ms on both.

Long enough that the milliseconds of TensorFlow's own threads are little of a step.
"""

LOOKS: dict[str, Any] = {"every": 8, "warm_up": 3, "dead_band": 0.005, "verbose": 0}
"""A narrow dead band: what the clock of a shared machine is off comes on top of it."""


@cache
def training_over(devices: int) -> Any:
    return slow.SlowTraining(*[0.0] * devices, batch=BATCH)


def training_on(*sample_seconds: float) -> Any:
    """One that has trained nothing; all over as many devices run what was traced once."""
    return training_over(len(sample_seconds)).anew(*sample_seconds)


def balancer(**words: Any) -> Any:
    return multi_gpu.RatioBalancer(**{**LOOKS, **words})


@pytest.mark.alone
class TestUnequalDevices:
    @pytest.mark.measured
    def test_are_levelled_from_equal_parts(self) -> None:
        levels = balancer()
        training = training_on(FAST, SLOW).fit_undisturbed(levels, steps=34)
        found = training.model.ratios

        assert 1 <= len(levels.changes) <= 10
        assert training.part_of_the_best_speed() >= 0.98
        balanced_s, best_s = training.seconds_in_turns(found, (3, 2), turns=48)
        assert best_s / balanced_s >= 0.98

    @pytest.mark.measured
    def test_are_levelled_whichever_is_first_and_however_many(self) -> None:
        levels = balancer()
        training = training_on(1 / 2_000, 1 / 6_000, 1 / 4_000)
        training.fit_undisturbed(levels, steps=46)

        assert 1 <= len(levels.changes) <= 10
        assert training.part_of_the_best_speed() >= 0.98

    @pytest.mark.measured
    @pytest.mark.parametrize(("slow_from", "steps"), [(15, 60), (33, 78)])
    def test_are_levelled_anew_where_one_slows_down(self, slow_from: int, steps: int) -> None:
        """At step 15 that is while the first change, made at step 11, is still being measured."""
        levels, training = balancer(), training_on(FAST, SLOW)

        def slow_down(step: int) -> None:
            if step == slow_from:
                training.devices.sample_seconds = (2 * FAST, SLOW)

        training.fit_undisturbed(levels, slow.each_step(slow_down), steps=steps)

        assert any(change.step > slow_from for change in levels.changes)
        assert len(levels.changes) <= 10
        assert training.part_of_the_best_speed() >= 0.98

    @pytest.mark.measured
    def test_are_levelled_over_epochs_and_calls_of_fit_with_smaller_last_batches(self) -> None:
        levels, training = balancer(every=4), training_on(FAST, SLOW)
        for _ in range(4):
            training.fit(levels, epochs=2, steps=3, more=77)

        assert len(levels.changes) >= 1
        assert {sum(change.new) for change in levels.changes} == {BATCH}
        assert [a.new for a, _ in pairwise(levels.changes)] == [
            b.old for _, b in pairwise(levels.changes)
        ]
        assert training.model.ratios[0] / BATCH == pytest.approx(0.6, abs=0.015)


@pytest.mark.alone
class TestEqualDevices:
    @pytest.mark.measured
    def test_are_left_alone(self) -> None:
        levels = balancer(dead_band=0.01)
        training = training_on(2 * SLOW, 2 * SLOW).fit(levels, steps=32)  # long: few hold-ups show

        assert levels.changes == ()
        assert training.model.ratios == (1, 1)


class TestMemory:
    @pytest.mark.alone
    def test_is_respected_from_the_first_step_on(self) -> None:
        levels = balancer(max_samples={"CPU:1": 320, "cpu:2": None})
        training = training_on(FAST, SLOW).fit(levels, steps=13)
        assert max(training.devices.samples_of(0)) == 320
        assert training.counts() == (320, 280)

        limited = balancer(max_samples=[None, 250])
        even = training_on(0.0, 0.0).fit(limited, steps=4)
        assert [change.step for change in limited.changes] == [0]
        assert limited.changes[0].reason == "CPU:2 holds 250 samples"
        assert even.devices.samples_of(1) == [250] * 4

    def test_is_respected_from_the_second_step_on_where_the_data_are_a_stream(self) -> None:
        levels, training = balancer(max_samples=[None, 250]), training_on(0.0, 0.0)
        batch = training.rows(1)
        stream = ((batch["x"], batch["y"]) for _ in range(4))
        training.model.fit(stream, steps_per_epoch=4, verbose=0, callbacks=[levels])

        assert training.devices.samples_of(1) == [300] + [250] * 3

    def test_that_just_holds_the_batch_will_do(self) -> None:
        training = training_on(0.0, 0.0).fit(balancer(max_samples=[300, 300]), steps=2)

        assert training.counts() == (300, 300)

    def test_that_cannot_hold_the_batch_is_refused_before_the_first_step(self) -> None:
        training = training_on(FAST, SLOW)

        with pytest.raises(ValueError, match=r"600 .* 500 \(CPU:1 300, CPU:2 200\)"):
            training.fit(balancer(max_samples=[300, 200]), steps=4)

        assert training.devices.spans == []


@pytest.mark.alone
class TestAChange:
    @pytest.mark.measured
    def test_is_an_event_and_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        levels = balancer(verbose=1)
        training_on(FAST, SLOW).fit(levels, steps=12)

        (first,) = levels.changes
        assert (first.step, first.old) == (11, (300, 300))
        assert first.expected_gain == pytest.approx(0.25, abs=0.05)
        assert first.reason.startswith("CPU:2 is slowest")
        line = capsys.readouterr().out
        assert line == f"gpumon: {first}\n"
        assert f"{first.new[0]}:{first.new[1]} from step 11" in line

    def test_alters_no_gradient(self) -> None:
        levels = balancer(every=3)
        levelled = training_on(FAST, SLOW).fit(levels, steps=12)
        bare = slow.SlowTraining(0.0, 0.0, batch=BATCH).fit(steps=12)

        assert levels.changes
        for one, other in zip(levelled.model.get_weights(), bare.model.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)

    @pytest.mark.measured
    @pytest.mark.parametrize("tagger_is_first", [True, False])
    def test_is_counted_in_the_ring_wherever_the_tagger_stands(self, tagger_is_first: bool) -> None:
        training, levels, tagger = training_on(FAST, SLOW), balancer(), k.tagger(gpus=[0, 1])
        callbacks = [tagger, levels] if tagger_is_first else [levels, tagger]
        training.fit(*callbacks, steps=12)

        assert k.facts().ratio_changes == len(levels.changes) >= 1
        told = tuple(round(BATCH * k.facts().shares[gpu]) for gpu in ("0", "1"))
        assert told == training.counts()
        assert k.steps_told() == 12
        # The first step may be traced, and is no train_step then.
        assert k.phase_ns()["train_step"] / 1e9 >= sum(training.devices.step_seconds()[1:])


@pytest.mark.alone
class TestADaemonsCounters:
    CLAIMED = (1e-5, 2e-5)
    """Busy seconds of a sample, as the daemon says; the devices themselves are equally quick."""

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
    def test_level_by_what_a_daemon_saw(self, tmp_path: Any) -> None:
        levels, training = balancer(source="gpumon"), training_on(SLOW / 4, SLOW / 4)
        training.fit(self.daemon_of(training, tmp_path), levels, steps=90)

        assert 1 <= len(levels.changes) <= 10
        first, second = training.counts()
        assert first / second == pytest.approx(2.0, rel=0.03)

    def test_are_not_asked_by_default(self, tmp_path: Any) -> None:
        # Devices that other work holds up now and then, and a daemon that claims a quarter.
        levels, training = balancer(dead_band=0.1), training_on(SLOW / 2, SLOW / 2)
        training.fit(self.daemon_of(training, tmp_path), levels, steps=16)

        assert levels.changes == ()

    def test_are_done_without_where_no_daemon_runs(self) -> None:
        levels = balancer(source="gpumon")
        training = training_on(FAST, SLOW).fit(levels, steps=12)

        assert training.counts()[0] > 340


class TestATrainingThatCannotBeLevelled:
    def test_goes_on_as_it_is_where_the_balancer_fails(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        training, levels = training_on(FAST, SLOW), balancer()
        monkeypatch.setattr(training.model, "replica_times", lambda: 1 / 0)

        with pytest.warns(RuntimeWarning, match="no longer balances.*ZeroDivisionError"):
            training.fit(levels, steps=4)

        assert training.devices.samples_of(0) == [300] * 4
        assert levels.changes == ()

    def test_is_left_alone_where_the_devices_take_turns(self) -> None:
        levels = balancer(every=1)
        training = slow.SlowTraining(FAST, SLOW, batch=BATCH, run_eagerly=True)

        with pytest.warns(RuntimeWarning, match="nothing with run_eagerly"):
            training.fit(levels, steps=3)

        assert levels.changes == ()

    def test_is_asked_no_more_often_than_it_was_said_and_by_the_thread_that_trains(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Keras calls a callback from other threads where each batch ends."""
        training, levels = training_on(0.0, 0.0), balancer(every=10, warm_up=3, dead_band=0.9)
        looked_at: list[int] = []
        threads: set[int] = set()
        asked = training.model.replica_times

        def noted() -> Any:
            looked_at.append(levels._step)
            threads.add(threading.get_ident())
            return asked()

        monkeypatch.setattr(training.model, "replica_times", noted)
        training.fit(levels, steps=25)

        assert looked_at == [0, 13, 23]
        assert threads == {threading.get_ident()}


class TestWrongWords:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ({"every": 0}, "every must be a whole number of steps, 1 or more, not 0"),
            ({"every": 2.5}, "every must be a whole number"),
            ({"warm_up": -1}, "warm_up must be a whole number of steps, 0 or more"),
            ({"source": "nvml"}, "source must be one of auto, replicas, gpumon, not 'nvml'"),
            ({"dead_band": 1}, "dead_band must be 0 or more and below 1"),
        ],
    )
    def test_are_refused_in_a_sentence(self, words: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            balancer(**words)

    def test_are_limits_that_do_not_fit_the_devices(self) -> None:
        model = training_on(FAST, SLOW).model
        for limits, sentence in (
            ({"GPU:0": 5}, "max_samples names GPU:0, and the model is split over CPU:1, CPU:2"),
            ([5], "1 limits for 2 devices"),
            (5, "max_samples must have a limit for each device, and is 5"),
            ([5, 0], "whole numbers, 1 or more, not 0"),
        ):
            with pytest.raises(ValueError, match=sentence):
                balancer(max_samples=limits).set_model(model)

    def test_are_a_model_on_one_device(self) -> None:
        model = b.dense()
        model.compile("sgd", "sparse_categorical_crossentropy")

        with pytest.raises(ValueError, match="multi_gpu_model, and Sequential"):
            model.fit(*b.rows()[:2], verbose=0, callbacks=[balancer()])


def test_a_balancer_listed_as_its_class_is_refused() -> None:
    with pytest.raises(TypeError, match=r"write RatioBalancer\(\) instead"):
        training_on(FAST, SLOW).fit(multi_gpu.RatioBalancer, steps=4)

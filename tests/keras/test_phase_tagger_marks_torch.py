"""What ``PhaseTagger`` says on torch besides phases: steps, compiling, devices, loaders."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b, keras, torch
from tests.keras.later import on_torch as t

pytestmark = pytest.mark.keras_torch
MS = 1_000_000

both_ways = pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
"""Keras calls callbacks on other threads where all of them allow it."""


class TestCompiling:
    """What torch compiles here is handed on as it is, so that it takes no half a minute."""

    def own_step(self, backend: Any) -> Any:
        import torch  # the compiler looks into what is imported later

        class Own(keras.Sequential):  # type: ignore[misc]
            def train_step(self, data: Any) -> Any:
                return super().train_step((scaled(data[0]), data[1]))

        def scale(rows: Any) -> Any:
            return torch.sin(rows) * 2

        scaled = scale if backend is None else torch.compile(scale, backend=backend)
        return b.small_model(kind=Own)

    @pytest.mark.measured
    def test_is_recorded_once_and_not_as_a_further_step(self) -> None:
        model = self.own_step("aot_eager")

        b.fit_rows(model, 64, b.tagger())
        first_ns = b.phase_ns()["compile"]
        b.fit_rows(model, 64, b.tagger())

        assert first_ns > 5 * MS
        assert b.phase_ns()["compile"] == first_ns
        assert b.marks(RingKind.STEP) == list(range(1, 9))

    def test_is_recorded_while_it_lasts(self) -> None:
        seen = []

        def slow_backend(graph: Any, _: Any) -> Any:
            seen.append(b.present_phase())
            return graph.forward

        b.fit_rows(self.own_step(slow_backend), 64, b.tagger())

        assert seen == [TrainingPhase.COMPILE]

    @pytest.mark.measured
    def test_is_none_where_nothing_is_compiled(self) -> None:
        b.fit_rows(self.own_step(None), 64, b.tagger())

        assert b.phase_ns()["compile"] == 0

    def test_leaves_nothing_with_the_compiler(self) -> None:
        from torch._dynamo.callback import callback_handler

        before = (list(callback_handler.start_callbacks), list(callback_handler.end_callbacks))
        b.fit_rows(b.small_model(), 64, b.tagger())

        assert before == (callback_handler.start_callbacks, callback_handler.end_callbacks)


class TestMarks:
    def test_a_scheduler_made_first_loses_none(self) -> None:
        class Scheduled(keras.Sequential):  # type: ignore[misc]
            """Trains by torch's own optimizer and scheduler."""

            def train_step(self, data: Any) -> Any:
                rows, sums = data[:2]
                loss = torch.nn.functional.mse_loss(self(rows, training=True), sums)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                return {"loss": loss}

        model = Scheduled([keras.layers.Input((b.FEATURES,)), keras.layers.Dense(1)])
        optimizer = torch.optim.SGD([v.value for v in model.trainable_weights], lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
        model.compile()

        t.fit_on(t.loader_of(t.SlowRows(16 * 50)), model=model)

        assert b.marks(RingKind.STEP) == list(range(1, 51))
        assert scheduler.last_epoch == 50

    def test_an_early_stop_ends_the_steps(self) -> None:
        def stop(own: Any) -> None:
            own.model.stop_training = own.times == 2

        stops = b.Does(stop, "on_train_batch_end")
        t.fit_on(t.loader_of(t.SlowRows(160)), stops, epochs=3)

        assert b.marks(RingKind.STEP) == [1, 2, 3]
        assert b.present_phase() is TrainingPhase.OTHER


class TestCuda:
    def test_is_not_touched_where_the_training_does_not(self) -> None:
        b.fit_rows(b.small_model(), 64, b.tagger())

        assert not torch.cuda.is_initialized()
        assert "gpumon-cuda" not in {thread.name for thread in threading.enumerate()}

    @pytest.mark.measured
    @both_ways
    def test_reports_when_a_step_was_done_where_the_training_uses_it(self, ordinary: bool) -> None:
        from trainer_hooks.taps.cuda_events import CudaEvents

        def hand_in(_: Any) -> None:
            """Gives the tap a device that is done with everything at once."""
            tagging = hook._tagging
            tagging._tap._tap._device = CudaEvents(EventOfAFastDevice, tagging.device_done)

        hook, model = b.tagger(), b.warmed_model(b.SleepingCompute(0.005))
        hands_in = b.Does(hand_in, "on_train_begin", async_safe=True)

        callbacks = [hook, hands_in, *b.others(ordinary)]
        b.fit(model, b.SlowBatches(0.01), *callbacks, steps=10, epochs=2)

        begun = [
            e.at_ns
            for e in b.records()
            if e.kind is RingKind.ENTER and e.phase is TrainingPhase.TRAIN_STEP
        ]
        done: dict[int, int] = {}
        for event in b.records():
            if event.kind is RingKind.DEVICE_DONE:
                done.setdefault(event.value, event.at_ns)
        assert sorted(done) == list(range(1, 21))
        assert all(begun[step - 1] + 5 * MS <= done[step] < begun[step] for step in range(1, 20))


class EventOfAFastDevice:
    """Like CUDA's, in the queue of a device that never has anything to do."""

    def record(self) -> None:
        self.at_ns = time.monotonic_ns()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Any) -> float:
        return float(end_event.at_ns - self.at_ns) / 1e6


class TestATrainingThatKerasDoesNotFeed:
    @pytest.mark.measured
    def test_is_reported_once_to_be_unseen_and_its_steps_are_counted(self) -> None:
        class Own(keras.Sequential):  # type: ignore[misc]
            """Feeds itself: nobody can see there what it waits for."""

            def fit(self, batches: Any, callbacks: Any) -> None:
                listed = keras.callbacks.CallbackList(callbacks, model=self)
                self.make_train_function()
                listed.on_train_begin()
                listed.on_epoch_begin(0)
                for number, batch in enumerate(batches):
                    listed.on_train_batch_begin(number)
                    logs = self.train_function([batch])
                    listed.on_train_batch_end(number, logs)
                listed.on_epoch_end(0, {})
                listed.on_train_end({})

        model = b.small_model(kind=Own)

        with b.one_warning("cannot see the steps"):
            model.fit(t.loader_of(t.SlowRows(64, seconds=0.002)), [b.tagger()])

        assert b.marks(RingKind.STEP) == [1, 2, 3, 4]
        recorded = b.phase_ns()
        assert (recorded["input_wait"], recorded["train_step"]) == (0, 0)
        assert recorded["other"] >= 3 * 16 * 2 * MS


class TestTheFacts:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_say_how_a_loader_is_set(self, workers: int) -> None:
        settings = {"prefetch_factor": 3, "persistent_workers": True} if workers else {}
        t.fit_on(t.loader_of(t.SlowRows(32), num_workers=workers, **settings))

        facts = b.facts().loader
        assert (facts["kind"], facts["adapter"]) == ("DataLoader", "TorchDataLoaderAdapter")
        assert (facts["workers"], facts["batch_size"], facts["batches"]) == (workers, 16, 2)
        assert facts["pin_memory"] is False
        assert facts["persistent_workers"] is (workers > 0)
        assert facts.get("prefetch") == (3 if workers else None)
        assert facts["class"] == "SlowRows"
        assert str(facts["defined_at"]).startswith("builders_torch.py:")

    def test_say_how_a_sequence_is_set(self) -> None:
        t.fit_on(b.SlowSequence(3, seconds=0.0, workers=2, max_queue_size=5))

        facts = b.facts().loader
        assert (facts["kind"], facts["workers"], facts["max_queue_size"]) == ("PyDataset", 2, 5)
        assert facts["use_multiprocessing"] is False

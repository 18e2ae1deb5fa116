"""``PhaseTagger`` on torch: its loaders, its compiler, its devices, and threads."""

from __future__ import annotations

import gc
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import builders, keras, on_torch, torch
from tests.waiting import until
from trainer_hooks import phase

pytestmark = pytest.mark.keras_torch
MS = 1_000_000
WAIT = (TrainingPhase.INPUT_WAIT, TrainingMode.TRAIN)


class TestTheWaitForALoader:
    def test_has_the_sleeps_of_its_dataset(self) -> None:
        data = on_torch.SlowRows(96, seconds=0.002)

        on_torch.fit_on(on_torch.loader_of(data), model=builders.warmed_model(), epochs=2)

        assert len(data.spans_ns) == 2 * 96
        assert builders.phases_within(data.spans_ns) == {WAIT}

    def test_has_the_start_of_its_workers(self) -> None:
        data = on_torch.SlowRows(64, seconds=0.002)
        began_ns = time.monotonic_ns()

        on_torch.fit_on(on_torch.loader_of(data, num_workers=2), model=builders.warmed_model())

        # Each worker has a batch of 16 rows ready after 32 ms at the earliest.
        assert 32 * MS <= builders.phase_ns()["input_wait"] < time.monotonic_ns() - began_ns
        assert builders.marks(RingKind.STEP) == [1, 2, 3, 4]

    def test_ends_where_the_next_batch_does_not_come(self) -> None:
        data = on_torch.RowsThatEnd(48, seconds_at_the_end=0.05)
        phases: list[Any] = []
        late = builders.Does(
            lambda _: phases.extend(builders.phases_in(TrainingMode.TRAIN)[-2:]), "on_epoch_end"
        )

        on_torch.fit_on(on_torch.loader_of(data), late, model=builders.warmed_model(), epochs=1)

        assert builders.phases_within(data.ends_ns) == {WAIT}
        assert phases == [TrainingPhase.BETWEEN_EPOCHS, TrainingPhase.CALLBACKS]
        assert builders.marks(RingKind.STEP) == [1, 2, 3]


class TestALoader:
    def test_loader_that_cannot_restart_ends_the_fit_with_its_error(self) -> None:
        loader, begun = on_torch.loader_of(on_torch.SlowRows(32, seconds=0)), iter([1, 2])

        class Begins(type(loader)):  # type: ignore[misc]
            def __iter__(self) -> Iterator[Any]:
                if next(begun, None) is None:
                    raise OSError("the disk is gone")
                return iter(loader)

        with pytest.raises(OSError, match="disk"):
            on_torch.fit_on(Begins(loader.dataset, batch_size=16), epochs=9)

    def test_is_unchanged_afterwards_and_its_data_are_not_kept_alive(self) -> None:
        data, model, hook = on_torch.SlowRows(64), builders.small_model(), builders.tagger()
        loader = on_torch.loader_of(data)
        before = dict(vars(loader))
        model.fit(loader, epochs=2, verbose=0, callbacks=[hook])

        assert vars(loader) == before
        assert len(list(loader)) == 4
        gone = weakref.ref(data)
        del data, loader, before
        gc.collect()
        assert gone() is None

    @pytest.mark.parametrize("workers", [0, 2])
    def test_has_its_settings_recorded(self, workers: int) -> None:
        settings = {"prefetch_factor": 3, "persistent_workers": True} if workers else {}
        on_torch.fit_on(on_torch.loader_of(on_torch.SlowRows(32), num_workers=workers, **settings))

        facts = builders.facts().loader
        assert (facts["kind"], facts["adapter"]) == ("DataLoader", "TorchDataLoaderAdapter")
        assert (facts["workers"], facts["batch_size"], facts["batches"]) == (workers, 16, 2)
        assert (facts["pin_memory"], facts["persistent_workers"]) == (False, workers > 0)
        assert facts.get("prefetch") == (3 if workers else None)
        assert facts["class"] == "SlowRows"
        assert str(facts["defined_at"]).startswith("builders_torch.py:")


class TestAFitThatRaises:
    def assert_followed_by_another(self, data: Any, error: type[Exception], steps: int) -> None:
        """The fit raises after ``steps`` steps."""
        model, hook = builders.warmed_model(), builders.tagger()
        bare = model.train_function

        with pytest.raises(error):
            model.fit(data, verbose=0, callbacks=[hook])
        assert model.train_function is bare
        assert builders.present_phase() is TrainingPhase.OTHER
        builders.fit(model, builders.SlowBatches(0.0), hook, steps=5, epochs=1)

        assert model.train_function is bare
        assert builders.marks(RingKind.STEP) == list(range(1, steps + 6))

    def test_error_in_a_loaders_data_allows_another_fit(self) -> None:
        class Broken(on_torch.SlowRows):
            def __getitem__(self, index: int) -> Any:
                if index == 40:
                    raise OSError("disk")
                return super().__getitem__(index)

        self.assert_followed_by_another(on_torch.loader_of(Broken(96), num_workers=1), OSError, 2)

    def test_error_in_a_step_allows_another_fit(self) -> None:
        too_narrow = (
            (rows[:, :3], sums) for rows, sums in [builders.rows_and_sums(builders.BATCH)] * 3
        )

        self.assert_followed_by_another(too_narrow, ValueError, 0)


class TestWhatKerasReports:
    def test_warnings_of_keras_are_unchanged(self) -> None:
        def warned(*callbacks: Any) -> list[str]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                data = on_torch.loader_of(on_torch.RowsThatEnd(60))
                builders.normalized_model().fit(
                    data, epochs=2, verbose=0, callbacks=list(callbacks)
                )
            # Others come from the threads of callbacks, now and then.
            return [str(w.message) for w in caught if issubclass(w.category, UserWarning)]

        assert warned(builders.tagger()) == warned()


class TestCompiling:
    """What torch compiles here is passed on as it is, so that it does not take half a minute."""

    def own_step(self, backend: Any, *, is_on_a_thread: bool = False) -> Any:
        import torch  # the compiler looks into what is imported later

        class Own(keras.Sequential):  # type: ignore[misc]
            def train_step(self, data: Any) -> Any:
                if is_on_a_thread:
                    thread = threading.Thread(target=scaled, args=data[:1])
                    thread.start()
                    thread.join()
                    return super().train_step(data)
                return super().train_step((scaled(data[0]), data[1]))

        def scale(rows: Any) -> Any:
            return torch.sin(rows) * 2

        scaled = torch.compile(scale, backend=backend)
        return builders.small_model(kind=Own)

    def test_is_recorded_once_and_not_as_a_further_step(self) -> None:
        from torch._dynamo.callback import callback_handler

        before = (list(callback_handler.start_callbacks), list(callback_handler.end_callbacks))
        model = self.own_step("aot_eager")

        builders.fit_rows(model, 64, builders.tagger())
        first_ns = builders.phase_ns()["compile"]
        builders.fit_rows(model, 64, builders.tagger())

        assert first_ns > 5 * MS
        assert builders.phase_ns()["compile"] == first_ns
        assert builders.marks(RingKind.STEP) == list(range(1, 9))
        assert before == (callback_handler.start_callbacks, callback_handler.end_callbacks)

    def test_is_recorded_while_it_lasts(self) -> None:
        seen = []

        def slow_backend(graph: Any, _: Any) -> Any:
            seen.append(builders.present_phase())
            return graph.forward

        builders.fit_rows(self.own_step(slow_backend), 64, builders.tagger())

        assert seen == [TrainingPhase.COMPILE]

    def test_on_another_thread_is_recorded_as_an_amount_of_its_step(self) -> None:
        def slow_backend(graph: Any, _: Any) -> Any:
            time.sleep(0.02)
            return graph.forward

        model = self.own_step(slow_backend, is_on_a_thread=True)
        builders.fit_rows(model, 64, builders.tagger())

        amounts = [event for event in builders.records() if event.kind is RingKind.AMOUNT]
        assert [event.phase for event in amounts] == [TrainingPhase.COMPILE]
        assert amounts[0].value >= 20 * MS
        assert builders.marks(RingKind.STEP) == [1, 2, 3, 4]


class TestSteps:
    def test_end_with_an_early_stop(self) -> None:
        def stop(own: Any) -> None:
            own.model.stop_training = own.times == 2

        stops = builders.Does(stop, "on_train_batch_end")
        on_torch.fit_on(on_torch.loader_of(on_torch.SlowRows(160)), stops, epochs=3)

        assert builders.marks(RingKind.STEP) == [1, 2, 3]
        assert builders.present_phase() is TrainingPhase.OTHER

    def test_are_counted_where_a_model_takes_several_an_execution(self) -> None:
        """Keras passes them in one list; its own torch models refuse them so far."""

        class Several(keras.Sequential):  # type: ignore[misc]
            def make_train_function(self, force: bool = False) -> Any:
                self.train_function = lambda data: [self.train_step(one) for one in data][-1]

        model = builders.small_model(kind=Several, steps_per_execution=3)

        on_torch.fit_on(on_torch.loader_of(on_torch.SlowRows(100)), model=model)

        assert builders.marks(RingKind.STEP) == [3, 6, 7]
        assert builders.marks(RingKind.SAMPLES)[-1] == 100

    def test_are_counted_without_a_wait_where_keras_does_not_feed_the_model(self) -> None:
        class Own(keras.Sequential):  # type: ignore[misc]
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

        with builders.one_warning("cannot see the steps"):
            builders.small_model(kind=Own).fit(
                on_torch.loader_of(on_torch.SlowRows(64, seconds=0.002)), [builders.tagger()]
            )

        assert builders.marks(RingKind.STEP) == [1, 2, 3, 4]
        recorded = builders.phase_ns()
        assert (recorded["input_wait"], recorded["train_step"]) == (0, 0)
        assert recorded["other"] >= 3 * 16 * 2 * MS

    def test_steps_of_the_model_on_another_thread_are_not_counted(self) -> None:
        model, (rows, sums) = builders.warmed_model(), builders.rows_and_sums(16)
        losses: list[float] = []

        def test_elsewhere(own: Any) -> None:
            thread = threading.Thread(
                target=lambda: losses.append(own.model.test_on_batch(rows, sums))
            )
            thread.start()
            thread.join()

        beside = builders.Does(test_elsewhere, "on_epoch_end")
        builders.fit(model, builders.SlowBatches(0.0), builders.tagger(), beside, steps=3)

        assert len(losses) == 2
        assert builders.marks(RingKind.STEP) == [1, 2, 3, 4, 5, 6]


def test_a_generator_that_yields_inside_a_region_lets_no_phase_outlast_the_fit() -> None:
    def endless() -> Iterator[Any]:
        while True:
            with phase("input_wait"):
                yield builders.rows_and_sums(8)

    batches, after = endless(), []
    for _ in range(2):
        builders.fit(builders.small_model(), batches, builders.tagger(), steps=4, epochs=1)
        after.append(builders.present_phase())
    del batches

    assert [*after, builders.present_phase()] == [TrainingPhase.OTHER] * 3


class TestCuda:
    def test_is_not_initialised_where_the_run_does_not_use_it(self) -> None:
        builders.fit_rows(builders.small_model(), 64, builders.tagger())

        assert not torch.cuda.is_initialized()
        assert "gpumon-cuda" not in {thread.name for thread in threading.enumerate()}

    def test_reports_when_a_step_was_done_where_the_run_uses_it(self) -> None:
        from trainer_hooks.taps.cuda_events import CudaEvents

        def place(_: Any) -> None:
            """Give the tap a device that is done with everything at once."""
            tagging = hook._tagging
            tagging._tap._tap._device = CudaEvents(
                EventOfAFastDevice, tagging.device_done, in_thread=nullcontext
            )

        hook, compute = builders.tagger(), builders.SleepingCompute(0.005)
        model = builders.warmed_model(compute)
        places = builders.Does(place, "on_train_begin", async_safe=True)

        builders.fit(model, builders.SlowBatches(0.01), hook, places, steps=10, epochs=2)

        done_ns: dict[int, int] = {}
        for event in builders.records():
            if event.kind is RingKind.DEVICE_DONE:
                done_ns.setdefault(event.value, event.at_ns)
        assert sorted(done_ns) == list(range(1, 21))
        for step, (start_ns, end_ns) in enumerate(compute.spans_ns, 1):
            assert end_ns <= done_ns[step]
            assert step == 1 or done_ns[step - 1] < start_ns
        assert until(lambda: "gpumon-cuda" not in {one.name for one in threading.enumerate()})


class EventOfAFastDevice:
    """Like CUDA's, in the queue of a device that never has anything to do."""

    def record(self) -> None:
        self.at_ns = time.monotonic_ns()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Any) -> float:
        return float(end_event.at_ns - self.at_ns) / 1e6

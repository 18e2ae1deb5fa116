"""``prefetch_to_device`` on TensorFlow: the second of two logical devices stands for a GPU.

The process that has two trains tagged on both as well.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.prefetch import Source
from tests.keras.later import builders, tf
from tests.keras.output_of_script import json_printed_by
from trainer_hooks.prefetch import prefetch_to_device
from trainer_hooks.ring.guard import QuietWarningOnce

pytestmark = pytest.mark.keras_tensorflow


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json_printed_by("tests.keras.training_on_two_devices")


class TestElementsOfTfData:
    def test_land_on_the_device(self, recorded: Any) -> None:
        assert recorded["comes"]["devices"] == ["/job:localhost/replica:0/task:0/device:CPU:1"]

    def test_stay_on_the_host_without_a_gpu(self, recorded: Any) -> None:
        assert recorded["comes"]["host"] == ["/job:localhost/replica:0/task:0/device:CPU:0"]

    def test_are_the_same_in_the_same_order_in_each_epoch(self, recorded: Any) -> None:
        assert recorded["comes"]["equal"] == [True, True]

    def test_are_ahead_by_the_depth_and_never_by_more(self, recorded: Any) -> None:
        assert recorded["ahead"] == {"CPU:1 1": 1, "CPU:1 3": 3, "CPU:0 2": 2}

    def test_keep_what_is_known_of_the_pipeline(self, recorded: Any) -> None:
        of_unknown_length = -2
        assert recorded["comes"]["lengths"] == [5, of_unknown_length]
        assert recorded["comes"]["facts"] == {
            "adapter": "TFDatasetAdapter",
            "kind": "tf.data",
            "batch_size": builders.BATCH,
            "cache": False,
            "parallel": False,
            "prefetch": True,
        }

    def test_raise_what_their_source_raised(self, recorded: Any) -> None:
        assert "torn" in recorded["error"]


class TestTheGapBetweenBatches:
    def test_is_shorter_with_prefetch(self, recorded: Any) -> None:
        gaps_s = recorded["gaps_s"]

        assert gaps_s["without"] > 0.02
        assert gaps_s["with"] < gaps_s["without"] / 2
        assert gaps_s["host"] < gaps_s["without"] / 2


class TestATrainingOnPrefetchedElements:
    def test_leaves_what_it_would_leave_without(self, recorded: Any) -> None:
        assert recorded["same"] is True


class TestATrainingOnBothDevicesOfAMirroredStrategy:
    def test_is_tagged_and_leaves_what_it_would_leave_without(self, recorded: Any) -> None:
        mirrored = recorded["mirrored"]

        assert mirrored["tagged"] == mirrored["bare"]
        assert mirrored["phase_ns"]["input_wait"] > 0
        assert mirrored["phase_ns"]["train_step"] > 0


class TestADeviceThatIsNotThere:
    @pytest.mark.parametrize("device", ["GPU:0", "/GPU:0", "cuda:0", "TPU:0", "CPU:9", "", 3])
    def test_is_refused_with_those_that_are(self, device: Any) -> None:
        with pytest.raises(ValueError, match=f"{device!r}: .* CPU:0"):
            prefetch_to_device(tf.data.Dataset.range(3), device=device)

    @pytest.mark.parametrize("device", ["CPU:0", "/CPU:0", "cpu:0", "/device:CPU:0"])
    def test_is_not_the_host_however_it_is_written(self, device: str) -> None:
        data = prefetch_to_device(tf.data.Dataset.range(3), device=device)

        assert [int(element) for element in data] == [0, 1, 2]


class TestWithoutANameOfADevice:
    @pytest.fixture
    def requested(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
        """The devices to which TensorFlow brings elements, and how many ahead."""
        requested: list[tuple[str, int]] = []

        def note(name: str, depth: int) -> Any:
            requested.append((name, depth))
            return lambda data: data

        monkeypatch.setattr(tf.data.experimental, "prefetch_to_device", note)
        return requested

    @pytest.fixture
    def two_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kind = tf.config.LogicalDevice
        gpus = [kind(f"/device:GPU:{index}", "GPU") for index in range(2)]
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda *_: gpus)

    @pytest.mark.usefixtures("two_gpus")
    def test_elements_go_to_the_first_gpu_with_a_warning_where_there_are_several(
        self, requested: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from trainer_hooks.prefetch import on_tensorflow

        monkeypatch.setattr(on_tensorflow, "_warn_of_several", QuietWarningOnce())

        with pytest.warns(RuntimeWarning, match='of 2 GPUs; .* device="CPU:0" for multi_gpu_model'):
            prefetch_to_device(tf.data.Dataset.range(3), depth=4)

        assert requested == [("/GPU:0", 4)]

    @pytest.mark.usefixtures("two_gpus")
    def test_elements_stay_on_the_host_for_keras_on_another_backend(
        self, requested: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from trainer_hooks.prefetch import on_tensorflow

        monkeypatch.setattr(on_tensorflow, "keras_backend", lambda: "jax")

        assert [int(one) for one in prefetch_to_device(tf.data.Dataset.range(3))] == [0, 1, 2]
        assert requested == []

    def test_a_warning_is_given_without_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from trainer_hooks.prefetch import kinds as no_device

        monkeypatch.setattr(no_device, "_warn", QuietWarningOnce())

        with pytest.warns(RuntimeWarning, match="TensorFlow sees no GPU, so batches are only"):
            prefetch_to_device(tf.data.Dataset.range(3))


class TestUnderAStrategy:
    def test_elements_stay_on_the_host_for_it_to_send(self) -> None:
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            model = builders.small_model()
            data = tf.data.Dataset.from_tensor_slices(builders.rows_and_sums(32)).batch(16)
            history = model.fit(prefetch_to_device(data), verbose=0)

        assert len(history.history["loss"]) == 1

    def test_data_that_is_distributed_already_is_refused(self) -> None:
        strategy = tf.distribute.MirroredStrategy(["CPU:0"])
        data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2))

        with pytest.raises(TypeError, match="a strategy"):
            prefetch_to_device(data)


class TestOtherDataForKerasOnTensorFlow:
    def test_has_no_device_to_name(self) -> None:
        with pytest.raises(ValueError, match=r"tf\.data\.Dataset .* 'CPU:1'"):
            prefetch_to_device(Source([1]), device="CPU:1")
        with pytest.raises(ValueError, match=r"PyDataset .* 'CPU:1'"):
            prefetch_to_device(builders.SlowSequence(1, seconds=0.0), device="CPU:1")

    def test_may_stay_on_the_host_by_name(self) -> None:
        assert list(prefetch_to_device(Source([1, 2]), device="CPU:0")) == [1, 2]

"""A Keras model whose every batch is split over several GPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import BatchSplit, Slices, merged, parts_of
from trainer_hooks.multi_gpu.replica_step import ReplicaStep
from trainer_hooks.multi_gpu.replica_times import ReplicaTimes, TimedStep
from trainer_hooks.multi_gpu.scoped_optimizer import carry_trained, scoped_optimizer
from trainer_hooks.multi_gpu.strategies import strategy_over
from trainer_hooks.multi_gpu.template_copy import carry_trainable, mirrored_copy
from trainer_hooks.multi_gpu.template_keeping import KeepsTemplate, Template
from trainer_hooks.multi_gpu.tensors import Setting, Tensor, Tensors
from trainer_hooks.multi_gpu.whole_batch_loss import PartWeight, over_whole_batch
from trainer_hooks.ring.gpu_shares import tell_shares_of

HOST = "CPU:0"


@dataclass(eq=False)
class _Parts:
    """What Keras is not to track: it would save it, and look for weights in it."""

    template: Template
    devices: tuple[str, ...]
    strategy: tf.distribute.MirroredStrategy
    split: BatchSplit
    part: PartWeight
    step: ReplicaStep
    times: ReplicaTimes
    merge_device: str
    is_timed: bool = False
    has_metrics: bool = False
    has_several_outputs: bool = False


class ParallelModel(KeepsTemplate, keras.Model):  # type: ignore[misc]  # Keras has no types
    """Trains copies of a model on several devices, each on its part of every batch.

    ``multi_gpu_model`` makes it. It is compiled, fitted, evaluated, checkpointed and saved as
    any Keras model; what is saved is the model it was made of, the template, with the
    trained weights. ``model.optimizer`` is the optimizer that trains: a copy of the one that
    was given to ``compile``, so a learning rate is changed there.
    """

    def __init__(
        self, template: keras.Model, devices: tuple[str, ...], ratios: Sequence[float], *, host: str
    ) -> None:
        super().__init__(name=template.name, dtype=template.dtype_policy)
        strategy = strategy_over(devices)
        with strategy.scope():
            self.replicas = mirrored_copy(template)
        part = PartWeight()
        self._parts = _Parts(
            Template(template),
            devices,
            strategy,
            BatchSplit(ratios),
            part,
            ReplicaStep(self.replicas, part),
            ReplicaTimes(len(devices)),
            host,
        )
        self.built = True

    @property
    def devices(self) -> tuple[str, ...]:
        """TensorFlow's names of the devices, such as ``("GPU:0", "GPU:1")``."""
        devices: tuple[str, ...] = self._parts.devices
        return devices

    @property
    def ratios(self) -> tuple[float, ...]:
        """One number for each device: its part of every batch, in proportion.

        May be assigned at any time, in the middle of a training too; the next step splits so.
        """
        ratios: tuple[float, ...] = self._parts.split.ratios
        return ratios

    @ratios.setter
    def ratios(self, ratios: Sequence[float]) -> None:
        self._parts.split.ratios = ratios
        tell_shares_of(self.devices, self.ratios)

    def time_replicas(self) -> None:
        """From now on, tell how long each device works on its part: see ``replica_times``."""
        if not self._parts.is_timed:
            self._parts.is_timed = True
            self.train_function = None  # what was traced before tells no times

    def replica_times(self) -> tuple[TimedStep, ...]:
        """What each device took in each step since this was last asked, oldest first.

        Of more than 64 steps the last 64; none before ``time_replicas``. With ``run_eagerly``
        the devices take turns: each is then timed in its own, and waits for the one before.
        """
        told: tuple[TimedStep, ...] = self._parts.times.taken()
        return told

    @property
    def output_names(self) -> list[str]:
        """Of the template, for losses and metrics given by name."""
        names: list[str] = self.replicas.output_names
        return names

    @property
    def metrics(self) -> list[keras.Metric]:
        """As Keras has it, with those that the template keeps itself."""
        return [*super().metrics, *self.replicas._metrics]

    def compile(  # noqa: PLR0913 (Keras' own words)
        self,
        optimizer: Setting = "rmsprop",
        loss: Setting = None,
        loss_weights: Setting = None,
        metrics: Setting = None,
        weighted_metrics: Setting = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """As Keras does; the words mean the same.

        Raises:
            ValueError: ``jit_compile=True``: XLA makes one cluster of the step and runs it on
                one device, whatever was placed where. ``steps_per_execution`` above 1:
                TensorFlow cannot run what joins devices in the loop that Keras makes of it. Or
                an optimizer or a loss that cannot be spread over devices.
        """
        if jit_compile is True:
            raise ValueError(
                "jit_compile=True would run every part of the batch on one GPU, because XLA "
                "compiles a step for one device; leave it out"
            )
        if steps_per_execution != 1:
            raise ValueError(
                f"steps_per_execution={steps_per_execution} cannot be spread over GPUs: TensorFlow "
                "cannot join devices inside the loop that Keras makes of several steps; leave it "
                "out, or take larger batches"
            )
        parts = self._parts
        template = parts.template.model
        carry_trainable(template, self.replicas)
        trained = template.trainable_variables, self.replicas.trainable_variables
        with parts.strategy.scope():
            self.replicas.compile(
                optimizer=scoped_optimizer(optimizer, *trained),
                loss=over_whole_batch(loss, parts.part),
                loss_weights=loss_weights,
                jit_compile=False,
                auto_scale_loss=auto_scale_loss,
            )
            # Now, because a step is traced outside the scope, and its variables made there.
            self.replicas.optimizer.build(self.replicas.trainable_variables)
            carry_trained(optimizer, self.replicas.optimizer, template, self.replicas)
        told = {
            "loss": loss,
            "loss_weights": loss_weights,
            "metrics": metrics,
            "weighted_metrics": weighted_metrics,
        }
        super().compile(
            optimizer=self.replicas.optimizer,
            **told,
            run_eagerly=run_eagerly,
            jit_compile=False,
            auto_scale_loss=False,
        )
        several_losses = len(keras.tree.flatten(loss)) > 1
        several_outputs = len(getattr(self.replicas, "outputs", None) or [None]) > 1
        parts.has_several_outputs = several_losses or several_outputs
        parts.has_metrics = metrics is not None or weighted_metrics is not None
        parts.template.forget_compiled(told)

    def train_step(self, data: Tensors) -> Tensors:
        """Split the batch, train every replica on its part, update all alike."""
        batch = keras.utils.unpack_x_y_sample_weight(data)
        parts = self._parts
        slices = parts.split.slices_of(batch[0])
        has_several = self._compile_loss is not None and (
            parts.has_several_outputs or len(keras.tree.flatten(batch[1])) > 1
        )
        if has_several:
            self._build_losses(batch)
        begun_at = None
        if parts.is_timed:
            begun_at, batch = parts.times.begun(batch)
        step = functools.partial(parts.step.train, begun_at=begun_at)
        told = parts.strategy.run(step, args=self._spread(batch, slices))
        predictions, losses, took = (self._of_each(value) for value in told)
        if parts.is_timed:
            parts.times.add(took, slices.counts)
        x, y, sample_weight = batch
        with tf.device(parts.merge_device):
            self._tell_loss(tf.add_n(losses), slices)
            if not parts.has_metrics and not has_several:
                return self.get_metrics_result()  # nobody asks for the outputs themselves
            y_pred = merged(predictions, slices)
            if has_several:
                self.compute_loss(x, y, y_pred, sample_weight)  # it tells the loss of each
            return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Split ``inputs``, let every replica compute its part, and put the outputs together."""
        parts = self._parts
        slices = parts.split.slices_of(inputs)
        if tf.executing_eagerly():
            self._take_from_template()
        step = functools.partial(parts.step.infer, training=training)
        told, added = parts.strategy.run(step, args=self._spread(inputs, slices))
        with tf.device(parts.merge_device):
            for losses in zip(*self._of_each(added), strict=True):
                self.add_loss(tf.add_n(losses))
            return merged(self._of_each(told), slices)

    def _spread(self, batch: Tensors, slices: Slices) -> Tensors:
        """``(data, part)`` for the replicas: each gets its own."""
        parts = self._parts
        with tf.device(HOST):
            given = parts_of(batch, slices, len(parts.devices))
        return parts.strategy.experimental_distribute_values_from_function(
            lambda context: given[context.replica_id_in_sync_group]
        )

    def _of_each(self, told: Tensors) -> list[Tensors]:
        """What each replica told, in the order of the devices, each in its own structure."""
        local = self._parts.strategy.experimental_local_results
        flat = [local(value) for value in keras.tree.flatten(told)]
        return [
            keras.tree.pack_sequence_as(told, [values[at] for values in flat])
            for at in range(len(self._parts.devices))
        ]

    def _build_losses(self, batch: Tensors) -> None:
        """Make what Keras counts the loss of each output with, where the variables are mirrored.

        It would otherwise be made while a replica's step is traced, outside of the scope.
        """

        def one_sample(tensor: Tensor) -> Callable[[], Tensor]:
            shape = [1, *(size or 1 for size in tensor.shape[1:])]
            return functools.partial(tf.zeros, shape, tensor.dtype)

        def build() -> None:
            x, y, _ = keras.tree.map_structure(lambda make: make(), made, none_is_leaf=False)
            with self._parts.strategy.scope():
                with keras.StatelessScope():  # no metric of a layer counts this sample
                    y_pred = self.replicas(x, training=False)
                self.replicas.compute_loss(x, y, y_pred)

        made = keras.tree.map_structure(one_sample, batch, none_is_leaf=False)
        # A thread of its own is in no graph and in the context of no other strategy.
        with ThreadPoolExecutor(1) as executor:
            executor.submit(build).result()

    def _tell_loss(self, loss: Tensor, slices: Slices) -> None:
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=slices.size)
                return

"""A Keras model whose batches are split over several GPUs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import get_ident
from typing import Final

import keras
import tensorflow as tf

from gpumon.core.attribution.batch_shares import shares_of
from trainer_hooks.balance.step_intervals import TimedStep
from trainer_hooks.multi_gpu.batch_split import (
    BatchSplit,
    ReplicaPart,
    Setting,
    Slices,
    Tensor,
    Tensors,
    merged,
    parts_of,
)
from trainer_hooks.multi_gpu.devices import names_of, per_replica, results_of, strategy_over
from trainer_hooks.multi_gpu.replica_step import Replicas, ReplicaStep, differentiable_call
from trainer_hooks.multi_gpu.replica_times import ReplicaTimes
from trainer_hooks.multi_gpu.scoped_optimizer import copy_state, scoped_optimizer
from trainer_hooks.multi_gpu.shared_weights import (
    read_as_numbers,
    share_weights,
    state_of,
    strategy_of,
    trained_here,
)
from trainer_hooks.multi_gpu.whole_batch_loss import PartWeight, over_whole_batch
from trainer_hooks.ring.process_ring import report_gpu_shares
from trainer_hooks.taps.keras_private import COMPILED, own_metrics_of

HOST: Final = "CPU:0"
_COMPILED: Final = ("compiled", "optimizer", "loss", *COMPILED)
"""The attributes that ``compile`` sets and ``save`` reads."""


@dataclass(eq=False)
class _Parts:
    """What Keras must not track: it would save it, and look for weights in it."""

    weights: tuple[Setting, ...]
    replicas: Replicas
    devices: tuple[str, ...]
    strategy: tf.distribute.MirroredStrategy
    split: BatchSplit
    part: PartWeight
    step: ReplicaStep
    times: ReplicaTimes
    merge_device: str
    untaped_by: int | None = None
    is_timed: bool = False
    has_metrics: bool = False
    has_several_outputs: bool = False


class ParallelModel(keras.Model):  # type: ignore[misc]  # Keras has no types
    """Trains a model on several devices, each on its part of every batch.

    Made by ``multi_gpu_model``. It is compiled, fitted, evaluated, checkpointed and saved like any
    Keras model; what is saved is the template, the model it was made of. Both always have the same
    weights. ``model.optimizer`` trains: it is a copy of the one given to ``compile``, so change the
    learning rate there.

    Attributes:
        template: The model it was made of.
    """

    def __init__(
        self, template: keras.Model, devices: tuple[str, ...], ratios: Sequence[float], *, host: str
    ) -> None:
        super().__init__(name=template.name, dtype=template.dtype_policy)
        self.template = template
        strategy = strategy_over(devices)
        weights = share_weights(template, strategy)
        replicas, part, times = Replicas(template), PartWeight(), ReplicaTimes(len(devices))
        self._parts = _Parts(
            weights,
            replicas,
            devices,
            strategy,
            BatchSplit(ratios),
            part,
            ReplicaStep(replicas, part, times),
            times,
            host,
        )
        self.built = True

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of its GPUs or their stand-ins, such as ``("GPU:0", "GPU:1")``."""
        return names_of(self._parts.devices)

    @property
    def tensorflow_devices(self) -> tuple[str, ...]:
        """TensorFlow's names of the same devices; a stand-in is called ``"CPU:1"`` or similar."""
        return self._parts.devices

    @property
    def ratios(self) -> tuple[float, ...]:
        """One number per device: its part of every batch, in proportion.

        May be assigned at any time, also during ``fit``; used from the next step on.
        """
        return self._parts.split.ratios

    @ratios.setter
    def ratios(self, ratios: Sequence[float]) -> None:
        self._parts.split.ratios = ratios
        self.report_shares()

    def report_shares(self) -> None:
        """Report each device's part of a batch to gpumon; called by PhaseTagger."""
        report_gpu_shares(self.tensorflow_devices, shares_of(self.ratios))

    def time_replicas(self) -> bool:
        """Start to measure how long each device works on its part: see ``replica_times``.

        Returns:
            ``False`` as long as TensorFlow allows no clock in a graph.
        """
        parts = self._parts
        is_allowed = parts.times.start()
        if is_allowed and not parts.is_timed:
            parts.is_timed = True
            self.train_function = None  # the traced step has no clocks
        return is_allowed

    def replica_times(self) -> tuple[TimedStep, ...]:
        """The time of each device in each step since the last call, oldest first.

        At most the last 64 steps; none before ``time_replicas``. With ``run_eagerly`` the devices
        take turns: each is timed in its own, and waits for the one before.
        """
        return self._parts.times.read()

    @property
    def output_names(self) -> list[str]:
        names: list[str] = self.template.output_names
        return names

    @property
    def metrics(self) -> list[keras.Metric]:
        """Keras' list, with the metrics of the template's layers."""
        return [*super().metrics, *own_metrics_of(self.template)]

    def compile(  # noqa: PLR0913 (Keras' own arguments)
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
        """Like Keras, with the same arguments.

        Raises:
            ValueError: ``jit_compile=True``: XLA would run the step on one device.
                ``steps_per_execution`` above 1: TensorFlow cannot join devices inside the loop
                that Keras makes. Or an optimizer or a loss that cannot be spread over devices.
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
        parts, template = self._parts, self.template
        self._refuse_if_moved()
        parts.weights = share_weights(template, parts.strategy)  # a layer may have new ones
        with parts.strategy.scope():
            parts.replicas.compile(
                optimizer=scoped_optimizer(optimizer),
                loss=over_whole_batch(loss, parts.part),
                loss_weights=loss_weights,
                jit_compile=False,
                auto_scale_loss=auto_scale_loss,
            )
            # Built here, because a step is traced outside of the scope.
            parts.replicas.optimizer.build(template.trainable_variables)
            copy_state(optimizer, parts.replicas.optimizer, template)
            read_as_numbers(parts.replicas.optimizer.variables)
        super().compile(
            optimizer=parts.replicas.optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            run_eagerly=run_eagerly,
            jit_compile=False,
            auto_scale_loss=False,
        )
        several_losses = len(keras.tree.flatten(loss)) > 1
        several_outputs = len(getattr(template, "outputs", None) or [None]) > 1
        parts.has_several_outputs = several_losses or several_outputs
        # Keras keeps the metrics of an earlier compile where none are given.
        parts.has_metrics = self._compile_metrics is not None

    @functools.wraps(keras.Model.fit, assigned=())
    def fit(self, *args: Setting, **named: Setting) -> Setting:
        """Like Keras. Meanwhile no other thread may set the template's weights."""
        self._check_clocks()
        with trained_here(self._parts.weights, self._parts.strategy):
            return super().fit(*args, **named)

    @functools.wraps(keras.Model.train_on_batch, assigned=())
    def train_on_batch(self, *args: Setting, **named: Setting) -> Setting:
        """Like Keras. Meanwhile no other thread may set the template's weights."""
        self._check_clocks()
        with trained_here(self._parts.weights, self._parts.strategy):
            return super().train_on_batch(*args, **named)

    def train_step(self, data: Tensors) -> Tensors:
        """Split the batch, train every replica on its part, and update all alike."""
        self._refuse_if_moved()
        batch = keras.utils.unpack_x_y_sample_weight(data)
        parts = self._parts
        slices = parts.split.slices_of(batch[0])
        has_several = self._compile_loss is not None and (
            parts.has_several_outputs or len(keras.tree.flatten(batch[1])) > 1
        )
        if has_several:
            parts.replicas.build_losses(batch, parts.strategy)
        arrived_at = None
        if parts.is_timed:
            arrived_at, batch = parts.times.arrival(batch)
        step = functools.partial(parts.step.train, arrived_at=arrived_at)
        given = per_replica(parts.strategy, self._parts_of(batch, slices))
        results = results_of(parts.strategy, parts.strategy.run(step, args=given))
        predictions, losses, took = zip(*results, strict=True)
        if parts.is_timed:
            parts.times.add(took, slices.counts)
        x, y, sample_weight = batch
        with tf.device(parts.merge_device):
            self._record_loss(tf.add_n(losses), slices)
            if not parts.has_metrics and not has_several:
                return self.get_metrics_result()  # the outputs are not needed
            y_pred = merged(predictions, slices)
            if has_several:
                self._set_batch_size(y_pred, x)
                self.compute_loss(x, y, y_pred, sample_weight)  # it records the loss of each output
            return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def test_step(self, data: Tensors) -> Tensors:
        """Like Keras; needs no gradients."""
        with self._untaped():
            return super().test_step(data)

    def predict_step(self, data: Tensors) -> Tensors:
        """Like Keras; needs no gradients."""
        with self._untaped():
            return super().predict_step(data)

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Split ``inputs``, let every replica compute its part, and merge the outputs.

        Differentiable, for a model around this one or a custom training loop.
        """
        parts = self._parts
        self._refuse_if_moved()
        slices = parts.split.slices_of(inputs)
        given = self._parts_of(inputs, slices)
        if parts.untaped_by == get_ident():
            infer = functools.partial(parts.step.infer, training=training)
            run = parts.strategy.run(infer, args=per_replica(parts.strategy, given))
            results = results_of(parts.strategy, run)
        else:
            results = differentiable_call(
                parts.step,
                parts.strategy,
                given,
                weights=self.template.trainable_variables,
                training=training,
            )
        outputs, added = zip(*results, strict=True)
        with tf.device(parts.merge_device):
            for losses in zip(*added, strict=True):
                self.add_loss(tf.add_n(losses))
            joined = merged(outputs, slices)
        if len(keras.tree.flatten(joined)) > 1:
            self._set_batch_size(joined, inputs)
        return joined

    def _set_batch_size(self, outputs: Tensors, inputs: Tensors) -> None:
        """Set the static number of rows of ``outputs`` where the graph knows the batch size.

        Keras weights the mean loss of each output by it; parts of a batch have no static size.
        """
        tensors = keras.tree.flatten(inputs)
        if tf.executing_eagerly() or not tensors or any(t.shape[0] is None for t in tensors):
            return
        with suppress(Exception):  # a custom layer may not compute without data
            specs = self.template.compute_output_spec(
                keras.tree.map_structure(lambda t: keras.KerasTensor(t.shape, t.dtype), inputs)
            )
            for output, spec in zip(
                keras.tree.flatten(outputs), keras.tree.flatten(specs), strict=True
            ):
                output.set_shape([spec.shape[0], *output.shape[1:]])

    def save(self, filepath: Setting, *args: Setting, **named: Setting) -> None:
        """Save the template, a model for one device.

        It is saved compiled and with the state of the optimizer, so that training can continue.
        """
        self._template_to_save().save(filepath, *args, **named)

    def save_weights(self, filepath: Setting, *args: Setting, **named: Setting) -> None:
        """Save the weights of the template and the state of the optimizer."""
        self._template_to_save().save_weights(filepath, *args, **named)

    def load_weights(self, filepath: Setting, *args: Setting, **named: Setting) -> None:
        """Load weights saved by this model or the template; all or none.

        Raises:
            Exception: Whatever Keras raises for a file that does not match.
        """
        state = [*state_of(self.template), *(self.optimizer.variables if self.compiled else ())]
        before = [keras.ops.convert_to_numpy(variable) for variable in state]
        try:
            self._template_to_save().load_weights(filepath, *args, **named)
        except Exception:
            for variable, value in zip(state, before, strict=True):
                variable.assign(value)
            raise

    def export(self, filepath: Setting, *args: Setting, **named: Setting) -> Setting:
        """Export the template."""
        return self.template.export(filepath, *args, **named)

    def summary(self, *args: Setting, **named: Setting) -> Setting:
        """The summary of the template."""
        return self.template.summary(*args, **named)

    def get_config(self) -> dict[str, object]:
        """Refused: only the template can be saved.

        Raises:
            ValueError: Always, with what to do instead.
        """
        raise ValueError(
            "a parallel model is not saved as such, because its GPUs may not be there when it is "
            "loaded; model.save(...) stores the single-device model with the trained weights, and "
            "serialize(model) returns it"
        )

    def get_compile_config(self) -> Setting:
        """Like Keras, for one device, where XLA may be used again."""
        config = super().get_compile_config()
        return {**config, "jit_compile": "auto"} if config else config

    def _check_clocks(self) -> None:
        """Clocks may have been forbidden since the step was traced with them."""
        if self._parts.is_timed:
            self._parts.times.start()

    @contextmanager
    def _untaped(self) -> Iterator[None]:
        self._parts.untaped_by = get_ident()
        try:
            yield
        finally:
            self._parts.untaped_by = None

    def _refuse_if_moved(self) -> None:
        """The weights may have moved to the devices of another parallel model."""
        parts = self._parts
        if any(strategy_of(variable) is not parts.strategy for variable in parts.weights):
            raise ValueError(
                f"{self.template.name!r} is now used by a newer parallel model on other GPUs, and "
                "this one has no weights any more: continue with the newer one, or make each from "
                "a model of its own, such as keras.models.clone_model(...)"
            )

    def _parts_of(self, batch: Tensors, slices: Slices) -> list[tuple[Tensors, ReplicaPart]]:
        with tf.device(HOST):
            return parts_of(batch, slices, len(self._parts.devices))

    def _record_loss(self, loss: Tensor, slices: Slices) -> None:
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=slices.size)
                return

    def _template_to_save(self) -> keras.Model:
        """A view of the template (same layers and weights), compiled as this model is."""
        if not self.compiled:
            return self.template
        stored = object.__new__(type(self.template))
        stored.__dict__.update(self.template.__dict__)
        stored.__dict__.update({name: getattr(self, name, None) for name in _COMPILED})
        stored.__dict__["get_compile_config"] = self.get_compile_config
        return stored

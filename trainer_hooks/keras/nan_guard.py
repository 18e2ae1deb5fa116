"""``NaNGuard``: a Keras 3 callback that names the layer and the batch of the first NaN."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras

from trainer_hooks.keras.own_fit import OwnFitCallback
from trainer_hooks.ring.guard import fail_quietly, warn_quietly
from trainer_hooks.taps import keras_private as private
from trainer_hooks.trainers.tagger import RefusesClass

_DEEPEST: Final = 64
_ON_FOUND: Final = ("stop", "raise", "warn")
_MOST_UNREAD: Final = 4
_MOST_ODD_LOSSES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """A variable that holds NaN or infinity. Epochs and batches count from 1.

    Attributes:
        layer: Its layer, with the models around it, such as ``"resnet/stem/bn"``.
        variable: Such as ``"moving_variance"``.
        others: How many other variables were found at the same time.
        epoch: The epoch in which it happened; 0: before the run.
        first_batch: The first batch that may have caused it; 0: before the run.
        last_batch: The last one.
        loss_batch: The first batch of this epoch whose logged loss was not finite, if known.
    """

    layer: str
    variable: str
    others: int
    epoch: int
    first_batch: int
    last_batch: int
    loss_batch: int | None

    def __str__(self) -> str:
        others = f" (and {self.others} more)" if self.others else ""
        return f"{self.variable} of layer {self.layer}{others} {self._when()}"

    def _when(self) -> str:
        if self.epoch == 0:
            return "was not finite before the first batch"
        if self.first_batch == self.last_batch:
            batches = f"batch {self.last_batch}"
        else:
            batches = f"one of the batches {self.first_batch} to {self.last_batch}"
        loss = "" if self.loss_batch is None else f", nor the loss from batch {self.loss_batch} on"
        return f"is not finite since {batches} of epoch {self.epoch}{loss}"


class NonFiniteWeightsError(ArithmeticError):
    """Weights or moving statistics are NaN or infinite; ``found`` says where."""

    def __init__(self, found: NonFinite) -> None:
        super().__init__(str(found))
        self.found = found


class NaNGuard(OwnFitCallback):
    """Watches the weights and the moving statistics of all layers for NaN and infinity.

    A loss can look fine while a BatchNorm's moving variance is NaN, because only evaluation uses
    it; and a NaN loss does not say which layer was first. This names the layer, the variable, the
    epoch and the batch.

    Each check is one pass over all weights on the device, started on the training thread between
    two steps. Its answer is read when it is ready: no step waits for it, not even on JAX.
    Guarantees:

    * A non-finite variable is found by the end of the epoch; with ``on_found="raise"``, before
      callbacks after this one save it.
    * With ``every=1`` the exact batch is named; else the batches since the last check, and the
      first of them whose logged loss was not finite.
    * It is reported when the device has answered, usually a batch or two after the check, and at
      most four checks later.
    * A non-finite logged loss triggers a check at once, once an epoch.
    * What was not finite before the first batch is reported as such.

    Only the first finding of a ``fit`` is reported. A ``fit`` inside a callback needs its own
    guard. Integer variables and those of optimizers and metrics are not checked. It works on all
    three backends, with nested models, and on the copies in a ``multi_gpu_model``; of a variable
    with a copy on each device, the first is checked.

    Args:
        every: Batches from one check to the next, 1 or more.
        on_found: ``"stop"`` ends the run as ``EarlyStopping`` does, with a warning;
            ``"raise"`` raises ``NonFiniteWeightsError`` out of ``fit``; ``"warn"`` warns.

    Attributes:
        found: The finding of this ``fit``, or ``None``.

    Raises:
        ValueError: An argument is not allowed.

    Example:
        ::

            model.fit(batches, callbacks=[NaNGuard()])
            # moving_variance of layer resnet/stem/bn is not finite since one of the batches
            # 26 to 50 of epoch 2; training is stopped
    """

    def __init__(self, every: int = 25, on_found: str = "stop") -> None:
        super().__init__("NaNGuard", "watches", raises=NonFiniteWeightsError)
        if not hasattr(every, "__index__") or isinstance(every, bool) or every < 1:
            raise ValueError(f"every must be a whole number of batches, 1 or more, not {every!r}")
        if on_found not in _ON_FOUND:
            raise ValueError(f"on_found must be one of {', '.join(_ON_FOUND)}, not {on_found!r}")
        self.found: NonFinite | None = None
        self._every = every
        self._on_found = on_found

    @RefusesClass
    @fail_quietly
    def set_model(self, model: Any) -> None:  # noqa: ANN401
        if not self._is_inside_own_fit():
            super().set_model(model)

    @fail_quietly
    def on_train_begin(self, logs: object = None) -> None:
        if not self._claim_fit():
            return
        self.found = None
        self._is_watching = True
        self._has_begun = False
        self._variables: tuple[Any, ...] = ()
        self._unread: deque[_Unread] = deque()
        self._epoch = 0
        self._begin_epoch()

    @fail_quietly
    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if self._is_called_by_own_fit():
            self._epoch = epoch + 1
            self._begin_epoch()

    @fail_quietly
    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        # Keras calls this between two steps on the training thread, on all backends. On JAX the
        # next step frees the buffers that are to be checked.
        if not self._watches_here():
            return
        self._begun = batch
        is_first = not self._has_begun
        self._has_begun = True
        if is_first or batch - self._checked >= self._every or self._follows_loss(batch):
            self._ask(batch, before_all=is_first)
        self._read(_MOST_UNREAD)

    @fail_quietly
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        # Perhaps on another thread, after later batches began. Keras has the numbers by now.
        if not self._is_called_by_own_fit():
            return
        if batch >= self._begun:
            self._ended = batch + 1
        loss = logs.get("loss") if isinstance(logs, dict) else None
        odd = isinstance(loss, float) and not math.isfinite(loss)
        if odd and len(self._odd_losses) < _MOST_ODD_LOSSES:
            self._odd_losses.append(batch + 1)

    @fail_quietly
    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        if not self._watches_here():
            return
        done = max(self._begun, self._ended)
        steps = (self.params or {}).get("steps")  # the last of several steps a call may be none
        if steps is not None:
            done = min(done, int(steps))
        if done > self._checked:
            self._ask(done)
        self._read(0)

    def _begin_epoch(self) -> None:
        self._begun = self._ended = self._checked = 0
        self._odd_losses: list[int] = []
        self._has_followed_loss = False

    def _watches_here(self) -> bool:
        return self._is_watching and self._is_called_by_own_fit()

    def _follows_loss(self, batch: int) -> bool:
        if self._has_followed_loss or not self._odd_losses or batch == self._checked:
            return False
        self._has_followed_loss = True
        return True

    def _ask(self, batch: int, *, before_all: bool = False) -> None:
        """Start a check of all variables as they are after that many batches of the epoch."""
        if not self._variables:  # a model may be built by its first batch
            backend = keras.backend.backend()
            # On JAX the property would put all of the run's state into the variables.
            model = self._model if backend == "jax" else self.model
            self._variables = _watched(model)
            if not self._variables:
                return
            self._look = _LOOKS[backend](model, self._variables)
        epoch, first = (0, 0) if before_all else (self._epoch, self._checked + 1)
        self._unread.append(_Unread(self._look(), epoch, first, batch))
        self._checked = batch

    def _read(self, most_unread: int) -> None:
        while self._unread and (
            len(self._unread) > most_unread or self._unread[0].answer.is_there()
        ):
            asked = self._unread.popleft()
            odd = [
                variable
                for variable, is_finite in zip(self._variables, asked.answer.read(), strict=True)
                if not is_finite
            ]
            if odd:
                self._report(odd, asked)

    def _report(self, odd: Sequence[Any], asked: _Unread) -> None:
        self._is_watching = False
        self._unread.clear()
        self.found = NonFinite(
            layer=_layer_of(self._model, odd[0]),
            variable=odd[0].name,
            others=len(odd) - 1,
            epoch=asked.epoch,
            first_batch=asked.first_batch,
            last_batch=asked.last_batch,
            loss_batch=min(self._odd_losses, default=None) if asked.epoch == self._epoch else None,
        )
        if self._on_found == "raise":
            raise NonFiniteWeightsError(self.found)
        if self._on_found == "stop":
            self._model.stop_training = True
        stopped = "; training is stopped" if self._on_found == "stop" else ""
        warn_quietly(f"{self.found}{stopped}")


@dataclass(frozen=True, slots=True)
class _Unread:
    answer: Answer
    epoch: int
    first_batch: int
    last_batch: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether each variable is finite, as soon as the device knows.

    Attributes:
        is_there: Whether it knows.
        read: Return one answer per variable; waits if there is none yet.
    """

    is_there: Callable[[], bool]
    read: Callable[[], list[bool]]


def _watched(model: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the weights and moving statistics of all layers that can be NaN."""
    return tuple(
        variable
        for variable in model.weights
        if str(variable.dtype).startswith(("float16", "float32", "float64", "bfloat16"))
    )


def _layer_of(model: Any, variable: Any) -> str:  # noqa: ANN401
    """Return the layer's name after those of the models and layers around it, joined by slashes.

    A parallel model has the name of the one in it, which is listed once.
    """
    around, current = [str(model.name)], model
    for _ in range(_DEEPEST):
        inside = private.layers_of(current, directly=True)
        current = next((layer for layer in inside if _has_weight(layer, variable)), None)
        if current is None:
            break
        if current.name != around[-1]:
            around.append(current.name)
    return "/".join(around)


def _has_weight(layer: Any, variable: Any) -> bool:  # noqa: ANN401
    return any(variable is weight for weight in layer.weights)


def _look_on_jax(model: Any, variables: tuple[Any, ...]) -> Callable[[], Answer]:  # noqa: ANN401
    import jax

    def finite(values: list[Any]) -> Any:  # noqa: ANN401
        return jax.numpy.stack([jax.numpy.isfinite(value).all() for value in values])

    look = jax.jit(finite)
    places = {
        id(variable): (kind, at)
        for kind in ("trainable_variables", "non_trainable_variables")
        for at, variable in enumerate(getattr(model, kind))
    }

    def values() -> list[Any]:
        """During training Keras keeps the values elsewhere; putting them back is expensive."""
        state = getattr(model, private.JAX_STATE, None)
        if isinstance(state, dict) and not getattr(model, private.JAX_STATE_IS_SYNCED, True):
            places_here = [places[id(variable)] for variable in variables]
            return [state[kind][at] for kind, at in places_here]
        model.jax_state_sync()
        return [variable.value for variable in variables]

    def asked() -> Answer:
        flags = look(values())
        return Answer(flags.is_ready, flags.tolist)

    return asked


def _look_on_tensorflow(_: Any, variables: tuple[Any, ...]) -> Callable[[], Answer]:  # noqa: ANN401
    import tensorflow as tf

    def finite() -> Any:  # noqa: ANN401
        values = [tf.convert_to_tensor(variable.value) for variable in variables]
        return tf.stack([tf.reduce_all(tf.math.is_finite(value)) for value in values])

    look = tf.function(finite, autograph=False)

    def asked() -> Answer:
        flags = look()
        # Keras has waited for the step by now, for the numbers of its logs.
        return Answer(lambda: True, lambda: flags.numpy().tolist())

    return asked


def _look_on_torch(_: Any, variables: tuple[Any, ...]) -> Callable[[], Answer]:  # noqa: ANN401
    import torch

    def look() -> Answer:
        with torch.no_grad():
            each = [torch.isfinite(variable.value).all() for variable in variables]
            flags = torch.stack([flag.to(each[0].device) for flag in each])
        if not flags.is_cuda:
            return Answer(lambda: True, flags.tolist)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(flags.device))
        return Answer(done.query, flags.tolist)

    return look


_LOOKS: Final = {
    "jax": _look_on_jax,
    "tensorflow": _look_on_tensorflow,
    "torch": _look_on_torch,
}

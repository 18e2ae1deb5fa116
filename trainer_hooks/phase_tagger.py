"""``PhaseTagger``: a Keras 3 callback that tells gpumon what the training is doing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import keras

from trainer_hooks.brackets import caller_named
from trainer_hooks.process_ring import describe_run, process_ring
from trainer_hooks.quiet_warning import warn_quietly
from trainer_hooks.tagging import Tagging

_TEST: Final = 1
_PREDICT: Final = 2


class PhaseTagger(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Tags every moment of ``fit``, ``evaluate`` and ``predict`` with its phase.

    ``model.fit(..., callbacks=[PhaseTagger()])``
        the run is called after ``$GPUMON_RUN``, else after the script.
    ``PhaseTagger(run="resnet", gpus=[0, 1])``
        says the name, and which GPUs it trains on.

    On JAX, TensorFlow and torch it tells apart ``input_wait, compile,
    train_step, device_sync, callbacks, checkpoint, validation, predict,
    between_epochs``. On another backend the wait for input and the step are
    both ``other``.

    It never blocks, raises, or changes a result; without a daemon it works as
    well, and whoever starts one later sees what is left of the run. One
    process trains with one tagger at a time.

    Args:
        run: Name of the run.
        gpus: Indices or UUIDs of the GPUs it trains on; else ``$GPUMON_GPUS``.
    """

    async_safe = True
    """Keras then need not wait for each step on account of this callback."""

    def __init__(self, run: str | None = None, gpus: Sequence[int | str] | None = None) -> None:
        super().__init__()
        self._run, self._gpus = run, gpus
        self._tagging: Tagging | None = None
        self._warned = False
        describe_run(run=run, gpus=gpus, framework=f"keras/{keras.backend.backend()}")

    def __reduce__(self) -> tuple[type[PhaseTagger], tuple[object, ...]]:
        """A copy, as tuners make them, is a new tagger of the same run."""
        return type(self), (self._run, self._gpus)

    def on_train_begin(self, logs: object = None) -> None:
        self._begin()

    def on_train_end(self, logs: object = None) -> None:
        if self._tagging is not None and not self._tagging.has_brackets:
            self._tagging.stop()

    def on_test_begin(self, logs: object = None) -> None:
        self._begin_alone(_TEST)

    def on_predict_begin(self, logs: object = None) -> None:
        self._begin_alone(_PREDICT)

    def _begin(self) -> None:
        try:
            self._start()
            if self._tagging is not None:
                self._tagging.train_begins((self.params or {}).get("steps"))
        except Exception as error:  # noqa: BLE001 (the training goes on untagged)
            self._give_up(error)

    def _begin_alone(self, mode: int) -> None:
        """``evaluate`` or ``predict``: inside a tagged ``fit`` the brackets see to it."""
        try:
            found = caller_named("self", self._is_our_list)
            if self._tagging is None or not self._tagging.is_in(found):
                self._start()
                if self._tagging is not None:
                    self._tagging.run_begins(mode)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def _start(self) -> None:
        if self._tagging is not None:
            self._tagging.stop()  # what a fit that raised left behind
            self._tagging = None
        ring = process_ring()
        if ring.writer is None:
            return
        backend = keras.backend.backend()
        if backend not in ("jax", "tensorflow", "torch") and not self._warned:
            self._warned = True
            warn_quietly(
                f"on {backend}, gpumon's PhaseTagger tells callbacks, checkpoint, validation and "
                "between_epochs apart; the wait for input and the step are both 'other'"
            )
        # ``self.model`` would make JAX copy its state back to the model.
        model, found = self._model, caller_named("self", self._is_our_list)
        self._tagging = Tagging(ring, model, found, backend=backend)
        describe_run(loader=_loader_facts(caller_named("epoch_iterator", _has_adapter)))

    def _is_our_list(self, candidate: Any) -> bool:  # noqa: ANN401
        if candidate is self:
            return False
        callbacks = getattr(candidate, "callbacks", None)
        return isinstance(callbacks, list) and any(callback is self for callback in callbacks)

    def _give_up(self, error: Exception) -> None:
        if self._tagging is not None:
            self._tagging.stop()
            self._tagging = None
        if not self._warned:
            self._warned = True
            warn_quietly(f"gpumon tags no phases: {error!r}")


def _has_adapter(candidate: Any) -> bool:  # noqa: ANN401
    return hasattr(candidate, "data_adapter")


def _loader_facts(epoch_iterator: Any) -> dict[str, str | int | float | bool | None]:  # noqa: ANN401
    """What can be seen of the input pipeline without touching it."""
    if epoch_iterator is None:
        return {}
    adapter = epoch_iterator.data_adapter
    facts: dict[str, str | int | float | bool | None] = {"adapter": type(adapter).__name__}
    dataset = getattr(adapter, "py_dataset", None)
    seen = {
        "batch_size": getattr(adapter, "batch_size", None),
        "batches": getattr(adapter, "num_batches", None),
        "workers": getattr(dataset, "workers", None),
        "max_queue_size": getattr(dataset, "max_queue_size", None),
        "use_multiprocessing": getattr(dataset, "use_multiprocessing", None),
    }
    facts.update({name: value for name, value in seen.items() if isinstance(value, (int, bool))})
    return facts

"""``PhaseTagger``: a Keras 3 callback that tags what a run is doing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from trainer_hooks.keras.brackets import is_bracketed
from trainer_hooks.keras.first_fetch import FirstFetches
from trainer_hooks.keras.nvtx_ranges import Ranges, find_ranges
from trainer_hooks.keras.probed_tap import TAPS
from trainer_hooks.keras.tagging import Tagging, TaggingOptions
from trainer_hooks.ring.call_frames import caller_named
from trainer_hooks.ring.guard import fail_quietly, passes_through, warn_quietly
from trainer_hooks.ring.phase_modes import PREDICT_MODE, TRAIN_MODE, VALIDATION_MODE
from trainer_hooks.ring.process_ring import process_ring
from trainer_hooks.trainers.loader_facts import facts_of, feeder_of_caller, report_loader
from trainer_hooks.trainers.tagger import RefusesClass, Tagger


class PhaseTagger(Tagger, keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Tags all of ``fit``, ``evaluate`` and ``predict`` with phases.

    ``model.fit(..., callbacks=[PhaseTagger()])``
        the run is named after ``$GPUMON_RUN``, else after the script.
    ``PhaseTagger(run="resnet", gpus=[0, 1])``
        names the run and its GPUs.
    ``PhaseTagger(logs=False)``
        adds no keys to the ``logs`` of other callbacks.

    On JAX, TensorFlow and torch it distinguishes ``input_wait, compile, train_step, device_sync,
    callbacks, checkpoint, validation, predict, between_epochs``. On another backend, or if none of
    the first three batches passes the model's train function, the wait for input and the step are
    both ``other``; one warning says so.

    It never blocks, raises, or changes a result. Without a daemon it works as well, and a daemon
    started later sees what is left of the run. One process trains with one tagger at a time. Its
    position in the list does not matter: all other callbacks are timed, by class.

    The ``logs`` of ``on_epoch_end`` gain these keys, so ``History``, ``CSVLogger`` and
    ``TensorBoard`` have them too:

    ``input_wait_ratio``
        time the run waited for input over the time of the epoch, both on the host, 0 to 1.
        With asynchronous dispatch, or several steps per execution on TensorFlow, the device may
        have been busy meanwhile.
    ``gpu_busy_ratio``
        busy time of this run's GPUs over observed time, 0 to 1, where a daemon runs.
    ``starved_ratio``
        their starved and suspected time over their time in use, 0 to 1, where a daemon runs.

    A value unknown at the end of the first epoch has no key; one unknown later is NaN, never 0.
    Unless ``verbose`` is 0, one line at the end of ``fit`` says how long a step took and what took
    the rest.

    Args:
        run: Name of the run.
        gpus: Indices or UUIDs of the GPUs it trains on; else ``$GPUMON_GPUS``.
        logs: Whether to add the keys above to the ``logs``.
        nvtx: Also open an NVTX range for each phase, in the domain ``gpumon``,
            for Nsight Systems and nvprof. Needs the package ``nvtx``, or torch
            with CUDA; with neither there is a warning and no range.

    Example:
        ::

            model.fit(
                batches,
                epochs=10,
                callbacks=[PhaseTagger(run="resnet"), keras.callbacks.CSVLogger("epochs.csv")],
            )
            # gpumon: 3,000 steps in 98.1 s, 32.1 ms a step (median, 3 warm-up steps left
            # out), 996 samples/s; 42 % of the time waiting for input: `gpumon report --run ...`
    """

    async_safe = True
    """Keras need not wait for each step because of this callback."""

    prints_figures = True
    """Whether the line at the end of ``fit`` is printed, where ``verbose`` is not 0."""

    _tagging: Tagging | None

    @passes_through
    def __init__(
        self,
        run: str | None = None,
        gpus: Sequence[int | str] | None = None,
        *,
        logs: bool = True,
        nvtx: bool = False,
    ) -> None:
        super().__init__()
        self._logs, self._nvtx = logs, nvtx
        self._set_up(run, gpus, framework=f"keras/{keras.backend.backend()}")

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_model": None, "_options": None}

    @fail_quietly
    def _announce(self) -> None:
        super()._announce()
        ranges = self._ranges() if self._nvtx else None
        self._options = TaggingOptions(logs=self._logs, ranges=ranges, warn=self._warn)
        if keras.backend.backend() in TAPS:
            FirstFetches.install()

    @RefusesClass
    @fail_quietly
    def set_model(self, model: Any) -> None:  # noqa: ANN401
        super().set_model(model)

    @RefusesClass
    @fail_quietly
    def set_params(self, params: Any) -> None:  # noqa: ANN401
        super().set_params(params)

    @fail_quietly
    def on_train_begin(self, logs: object = None) -> None:
        tagging = self._start(caller_named("self", self._is_our_list), TRAIN_MODE)
        if tagging is not None:
            params = getattr(self, "params", None) or {}  # an older Keras may not set it
            verbose = self.prints_figures and bool(params.get("verbose"))
            tagging.train_begins(params.get("steps"), verbose=verbose)
            if hasattr(self._model, "report_shares"):  # it splits its batches over GPUs
                self._model.report_shares()

    @fail_quietly
    def on_train_end(self, logs: object = None) -> None:
        if self._tagging is not None and not self._tagging.has_brackets:
            self._tagging.stop()

    @fail_quietly
    def on_test_begin(self, logs: object = None) -> None:
        self._begin_alone(VALIDATION_MODE)

    @fail_quietly
    def on_predict_begin(self, logs: object = None) -> None:
        self._begin_alone(PREDICT_MODE)

    def _begin_alone(self, mode: int) -> None:
        """Tag ``evaluate`` or ``predict`` outside ``fit``; inside, the brackets see them."""
        found = caller_named("self", self._is_our_list)
        if self._tagging is None or not self._tagging.is_in(found):
            tagging = self._start(found, mode)
            if tagging is not None:
                tagging.run_begins(mode)

    def _start(self, found: Any | None, mode: int) -> Tagging | None:  # noqa: ANN401
        """Tag the run whose ``CallbackList`` was found; ``None`` where another tagger does."""
        if self._tagging is not None and self._tagging.encloses(found):
            return None  # a callback of that fit trains or evaluates another model
        self._stop()  # left behind by a fit that raised
        FirstFetches.remove()
        ring = process_ring()
        if ring.writer is None:
            return None
        backend = keras.backend.backend()
        if backend not in TAPS:
            self._warn(
                f"on {backend}, gpumon's PhaseTagger tags callbacks, checkpoint, validation and "
                "between_epochs; the wait for input and the step are both 'other'"
            )
        # ``self.model`` would make JAX copy its state back to the model.
        model: Any = self._model
        if found is not None and is_bracketed(found):
            return None  # another tagger in the same list does it
        self._describe_run()
        self._describe_device(backend, model)
        tagging = Tagging(ring, model, found, backend=backend, options=self._options)
        self._tagging = tagging
        feeder = feeder_of_caller()
        if feeder is not None:
            tagging.ends_with(feeder)
        report_loader(facts_of(feeder), validates=mode == VALIDATION_MODE)
        return tagging

    def _is_our_list(self, candidate: Any) -> bool:  # noqa: ANN401
        if candidate is self:
            return False
        callbacks = getattr(candidate, "callbacks", None)
        return isinstance(callbacks, list) and any(callback is self for callback in callbacks)

    def _ranges(self) -> Ranges | None:
        try:
            ranges = find_ranges()
        except Exception:  # noqa: BLE001 (a broken package is as good as none)
            ranges = None
        if ranges is None:
            warn_quietly(
                "PhaseTagger(nvtx=True) opens no NVTX ranges: neither the nvtx package "
                "(`pip install nvtx`) nor a CUDA build of torch is installed",
            )
        return ranges

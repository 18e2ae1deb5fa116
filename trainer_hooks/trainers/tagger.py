"""What the taggers of all trainers share: describing the run, and warnings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from types import MethodType
from typing import Any, Final, NoReturn, Protocol

from trainer_hooks.ring.guard import fail_quietly, passes_through, warn_quietly
from trainer_hooks.ring.process_ring import announce_run, describe_run, withdraw_run

_WHERE: Final = {
    "setup": "trainer_hooks.lightning",
    "on_exception": "trainer_hooks.lightning",
    "on_init_end": "trainer_hooks.huggingface",
    "on_batch_begin": "trainer_hooks",
    "on_batch_end": "trainer_hooks",
    "set_params": "trainer_hooks",
}
"""Methods that only one trainer looks up on callbacks, and the package of its tagger."""
_TRAINER: Final = {
    "trainer_hooks": "Keras",
    "trainer_hooks.lightning": "Lightning",
    "trainer_hooks.huggingface": "the Hugging Face Trainer",
}
_PER_RUN: Final = frozenset({"_tagging", "_warned"})


class RefusesClass:
    """Decorates the first method that a trainer calls on its callbacks.

    ``callbacks=[PhaseTagger]`` calls it on the class: then it raises and says what to write.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @passes_through
    def __get__(self, instance: object | None, owner: type) -> Callable[..., Any]:
        if instance is not None:
            return MethodType(self._method, instance)

        @wraps(self._method)
        def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            if args and isinstance(args[0], owner):  # as in ``PhaseTagger.set_model(self, model)``
                return self._method(*args, **named)
            name = owner.__name__
            raise TypeError(f"callbacks=[{name}] lists the class: write {name}() instead")

        return call


class Stoppable(Protocol):
    """A tagged run."""

    def stop(self) -> None:
        """Take everything away. Safe to call twice, and from any thread."""


class Tagger:
    """Base class of taggers, before the trainer's callback class.

    A copy, as made by tuners, is a new tagger of the same run, whatever a subclass adds.
    """

    # Class attributes, because a subclass may not call our ``__init__``, which must not end a run.
    _tagging: Stoppable | None = None
    _warned = False
    _run: str | None = None
    _gpus: Sequence[int | str] | None = None
    _framework: str | None = None
    _logs = True

    def __getstate__(self) -> dict[str, Any]:
        return {name: kept for name, kept in vars(self).items() if name not in _PER_RUN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start_afresh()

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse a trainer of another library, which looks up methods that are missing here.

        A run known only by the wrong tagger is withdrawn.
        """
        kind = type(self)
        if name not in _WHERE:
            raise AttributeError(f"{kind.__qualname__!r} object has no attribute {name!r}")
        withdraw_run()
        package = _WHERE[name]
        raise AttributeError(
            f"gpumon has another tagger for {_TRAINER[package]}: "
            f"`from {package} import PhaseTagger` (this one is that of {kind.__module__})",
            name=None,  # otherwise Python would append "Did you mean: ..."
            obj=None,
        )

    @passes_through
    def _set_up(self, run: str | None, gpus: Sequence[int | str] | None, *, framework: str) -> None:
        """Become a tagger of that run; see ``announce_run``."""
        self._run, self._gpus, self._framework = run, gpus, framework
        self._start_afresh()

    @passes_through
    def _start_afresh(self) -> None:
        self._tagging = None
        self._warned = False
        self._announce()

    @fail_quietly
    def _announce(self) -> None:
        """Announce a run, which may never start."""
        announce_run(run=self._run, gpus=self._gpus, framework=self._framework)

    def _describe_run(self) -> None:
        describe_run(run=self._run, gpus=self._gpus, framework=self._framework)

    def _describe_device(self, framework: str, model: object) -> None:
        """Record where its model computes; see ``is_on_cpu``."""
        describe_run(on_cpu=is_on_cpu(framework, model))

    def _stop(self) -> None:
        if self._tagging is not None:
            self._tagging.stop()
            self._tagging = None

    passes: tuple[type[Exception], ...] = ()
    """A tagger ends no training."""

    def _fail(self, error: Exception) -> None:
        """Continue the run untagged after an error of our own."""
        try:
            self._stop()
        finally:
            self._warn(f"gpumon tags no phases: {error!r}")

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warn_quietly(text)


def is_on_cpu(framework: str, model: Any) -> bool:  # noqa: ANN401
    """Whether the run certainly computes on the CPU; in doubt or on an error, no.

    Called as a run begins, when the model and the devices exist; imports nothing.

    Args:
        framework: ``"jax"``, ``"tensorflow"`` or ``"torch"``.
        model: What is trained; used for torch only.
    """
    module: Any = sys.modules.get(framework)
    try:
        if framework == "jax":
            return bool(module.default_backend() == "cpu")
        if framework == "tensorflow":
            devices = module.config.list_logical_devices()
            return bool(devices) and all(device.device_type == "CPU" for device in devices)
        if framework == "torch":
            # A model that is offloaded has its weights on the CPU, and computes on a GPU.
            where = {str(weight.device.type) for weight in model.parameters()}
            return where == {"cpu"} and not module.cuda.is_initialized()
    except Exception:  # noqa: BLE001 (not imported, another version, an odd model)
        return False
    return False

"""Which variables of a model are finite, found out by its device while it goes on training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

_DEEPEST: Final = 64


class Answer(Protocol):
    """Whether each variable is finite, as soon as the device has found out."""

    def is_there(self) -> bool: ...
    def read(self) -> list[bool]: ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """An answer in the words of a framework."""

    is_there: Callable[[], bool]
    read: Callable[[], list[bool]]


def watched(model: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Weights and moving statistics of all layers at any depth, if they can be NaN."""
    return tuple(
        variable
        for variable in model.weights
        if str(variable.dtype).startswith(("float16", "float32", "float64", "bfloat16"))
    )


def layer_of(model: Any, variable: Any) -> str:  # noqa: ANN401
    """The name of its layer after those of the models and layers around that, by slashes.

    A parallel model has the name of the one in it: that counts once.
    """
    around, here = [str(model.name)], model
    for _ in range(_DEEPEST):
        inside = here._flatten_layers(include_self=False, recursive=False)
        here = next((one for one in inside if any(variable is own for own in one.weights)), None)
        if here is None:
            break
        if here.name != around[-1]:
            around.append(here.name)
    return "/".join(around)


def _look_on_jax(model: Any, variables: tuple[Any, ...]) -> Callable[[], Answer]:  # noqa: ANN401
    import jax

    def finite(values: list[Any]) -> Any:  # noqa: ANN401
        return jax.numpy.stack([jax.numpy.isfinite(value).all() for value in values])

    look, places = jax.jit(finite), _places_in_state(model)

    def values() -> list[Any]:
        """While it trains, Keras has them beside the variables; to put them back costs much."""
        state = getattr(model, "_jax_state", None)
        if isinstance(state, dict) and not getattr(model, "_jax_state_synced", True):
            places_here = [places[id(variable)] for variable in variables]
            return [state[kind][at] for kind, at in places_here]
        model.jax_state_sync()
        return [variable.value for variable in variables]

    def asked() -> Answer:
        flags = look(values())
        return _Asked(flags.is_ready, flags.tolist)

    return asked


def _places_in_state(model: Any) -> dict[int, tuple[str, int]]:  # noqa: ANN401
    return {
        id(variable): (kind, at)
        for kind in ("trainable_variables", "non_trainable_variables")
        for at, variable in enumerate(getattr(model, kind))
    }


def _look_on_tensorflow(_: Any, variables: tuple[Any, ...]) -> Callable[[], Answer]:  # noqa: ANN401
    import tensorflow as tf

    def finite() -> Any:  # noqa: ANN401
        values = [tf.convert_to_tensor(variable.value) for variable in variables]
        return tf.stack([tf.reduce_all(tf.math.is_finite(value)) for value in values])

    look = tf.function(finite, autograph=False)

    def asked() -> Answer:
        flags = look()
        # Keras has waited for the step by now, for the numbers of its logs.
        return _Asked(lambda: True, lambda: flags.numpy().tolist())

    return asked


def _look_on_torch(_: Any, variables: tuple[Any, ...]) -> Callable[[], Answer]:  # noqa: ANN401
    import torch

    def look() -> Answer:
        with torch.no_grad():
            each = [torch.isfinite(variable.value).all() for variable in variables]
            flags = torch.stack([one.to(each[0].device) for one in each])
        if not flags.is_cuda:
            return _Asked(lambda: True, flags.tolist)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(flags.device))
        return _Asked(done.query, flags.tolist)

    return look


LOOKS: Final = {
    "jax": _look_on_jax,
    "tensorflow": _look_on_tensorflow,
    "torch": _look_on_torch,
}

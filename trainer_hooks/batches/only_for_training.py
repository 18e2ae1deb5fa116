"""Batches filled up with copies are for training only: ``evaluate`` would count the copies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from trainer_hooks.ring.call_frames import local_in


def is_evaluating(data: Any = None) -> bool:  # noqa: ANN401
    """Whether Keras' ``evaluate`` is among the callers, with no ``fit`` inside it.

    Args:
        data: The data in use, where ``fit`` may also inspect it for a later validation.
    """
    frame = sys._getframe(1).f_back
    while frame is not None:
        name = frame.f_code.co_name
        if name in ("evaluate", "fit") and hasattr(local_in(frame, "self"), "compute_metrics"):
            validates = data is not None and local_in(frame, "validation_data") is data
            return name == "evaluate" or (validates and local_in(frame, "x") is not data)
        frame = frame.f_back
    return False


def refusal(tail: str) -> ValueError:
    """The error for ``evaluate``. ``tail``: how the batches are filled up."""
    return ValueError(
        f'these batches are filled up with copies of samples (tail="{tail}"), which evaluate would '
        "count: evaluate the original data, where a short last batch is harmless"
    )


def only_for_training(data: Any, tail: str) -> Any:  # noqa: ANN401
    """Make ``data`` refuse to be used by ``evaluate``.

    Args:
        data: A ``tf.data.Dataset`` or a ``DataLoader`` of our own.
        tail: How its batches are filled up.
    """
    kind: Any = type(data)
    # With several devices TensorFlow reads a dataset's element_spec instead of an iterator;
    # iterators read it, too.
    member = "element_spec" if hasattr(kind, "element_spec") else "__iter__"
    original = getattr(kind, member)

    def refuse_or(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def checked(self: Any) -> Any:  # noqa: ANN401
            if is_evaluating(self):
                raise refusal(tail)
            return call(self)

        return checked

    is_property = isinstance(original, property)
    guarded = property(refuse_or(original.fget)) if is_property else refuse_or(original)
    # Its constructors cannot make an instance of our class.
    data.__class__ = type(kind.__name__, (kind,), {member: guarded, "gpumon_tail": tail})
    return data


def only_as(data: Any, made: Any) -> Any:  # noqa: ANN401
    """``made`` from ``data``, and only for training if ``data`` is."""
    tail = getattr(data, "gpumon_tail", None)
    return made if tail is None else only_for_training(made, tail)

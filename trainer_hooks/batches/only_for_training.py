"""Batches that are filled up with copies are for training: evaluate would count the copies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from trainer_hooks.ring.call_frames import local_in


def is_evaluating(data: Any = None) -> bool:  # noqa: ANN401
    """Whether Keras' ``evaluate`` is among the callers, and no ``fit`` within it.

    Args:
        data: What is asked for, if ``fit`` may also look at it for a validation to come.
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
    """What is raised there. ``tail``: how the batches are filled up."""
    return ValueError(
        f'these batches are filled up with copies of samples (tail="{tail}"), which evaluate would '
        "count as samples of their own: let it evaluate the data as they are, for there a short "
        "last batch harms nothing"
    )


def only_for_training(data: Any, tail: str) -> Any:  # noqa: ANN401
    """``data``, which from now on refuses to be gone through by ``evaluate``.

    Args:
        data: A ``tf.data.Dataset`` or a ``DataLoader``, made here.
        tail: How its batches are filled up.
    """
    kind: Any = type(data)
    # TensorFlow asks a dataset for its element_spec, and not for an iterator, where several
    # devices are to have parts of it. An iterator of it asks for that, too.
    asked = "element_spec" if hasattr(kind, "element_spec") else "__iter__"
    answer = getattr(kind, asked)

    def refuse_or(tell: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def told(self: Any) -> Any:  # noqa: ANN401
            if is_evaluating(self):
                raise refusal(tail)
            return tell(self)

        return told

    is_property = isinstance(answer, property)
    guarded = property(refuse_or(answer.fget)) if is_property else refuse_or(answer)
    # Its makers have no place for a class of ours.
    data.__class__ = type(kind.__name__, (kind,), {asked: guarded, "gpumon_tail": tail})
    return data


def only_as(data: Any, made: Any) -> Any:  # noqa: ANN401
    """``made`` of ``data``, and only for training where that is."""
    tail = getattr(data, "gpumon_tail", None)
    return made if tail is None else only_for_training(made, tail)

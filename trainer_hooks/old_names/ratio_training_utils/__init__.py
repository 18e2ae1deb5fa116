"""The module that scripts of the ratio repository import: ``import ratio_training_utils``.

Installed under that name, so that such a script runs unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer_hooks.multi_gpu import multi_gpu_model as split_over

if TYPE_CHECKING:
    import keras

    from trainer_hooks.multi_gpu import ParallelModel

__all__ = ["multi_gpu_model"]


def multi_gpu_model(
    model: keras.Model, gpus: int | Sequence[int | str], ratios: Sequence[float] = ()
) -> ParallelModel:
    """``trainer_hooks.multi_gpu_model`` with the signature of the ratio repository.

    Args:
        model: A built Keras model.
        gpus: How many GPUs, or which.
        ratios: One number per GPU; empty for equal parts.
    """
    return split_over(model, gpus, ratios if len(ratios) else None)

"""What these tests are about and built from: Keras is imported with it, when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.imported_later import ImportedLater

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    import torch

    from tests.keras import builders_batches as batch_builders
    from tests.keras import builders_keras as builders
    from tests.keras import builders_tensorflow as on_tensorflow
    from tests.keras import builders_torch as on_torch
    from trainer_hooks.keras import nan_guard
else:
    keras = ImportedLater("keras")
    tf = ImportedLater("tensorflow")
    torch = ImportedLater("torch")
    batch_builders = ImportedLater("tests.keras.builders_batches")
    nan_guard = ImportedLater("trainer_hooks.keras.nan_guard")
    builders = ImportedLater("tests.keras.builders_keras")
    on_tensorflow = ImportedLater("tests.keras.builders_tensorflow")
    on_torch = ImportedLater("tests.keras.builders_torch")

__all__ = [
    "batch_builders",
    "builders",
    "keras",
    "nan_guard",
    "on_tensorflow",
    "on_torch",
    "tf",
    "torch",
]

"""The builders of these tests, which import Keras and TensorFlow when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.imported_later import ImportedLater

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tests.multi_gpu import builders_layers as kinds
    from tests.multi_gpu import builders_middle as middle_builders
    from tests.multi_gpu import builders_parallel as builders
    from trainer_hooks import multi_gpu
else:
    builders = ImportedLater("tests.multi_gpu.builders_parallel")
    middle_builders = ImportedLater("tests.multi_gpu.builders_middle")
    kinds = ImportedLater("tests.multi_gpu.builders_layers")
    keras = ImportedLater("keras")
    tf = ImportedLater("tensorflow")
    multi_gpu = ImportedLater("trainer_hooks.multi_gpu")

__all__ = ["builders", "keras", "kinds", "middle_builders", "multi_gpu", "tf"]

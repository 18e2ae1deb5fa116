"""The builders of these tests: Keras is imported with them, when one is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.imported_later import ImportedLater

if TYPE_CHECKING:
    from tests.keras import builders_keras as b
    from tests.keras import builders_tensorflow as on_tensorflow
    from tests.keras import builders_torch as on_torch
else:
    b = ImportedLater("tests.keras.builders_keras")
    on_tensorflow = ImportedLater("tests.keras.builders_tensorflow")
    on_torch = ImportedLater("tests.keras.builders_torch")

__all__ = ["b", "on_tensorflow", "on_torch"]

"""Words for what has no types: Keras and TensorFlow carry none."""

from __future__ import annotations

from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor, eager or in a graph."""

Tensors: TypeAlias = Any
"""A structure of tensors: one, or a list, tuple or dictionary of structures; ``None`` for none."""

Setting: TypeAlias = Any
"""What Keras' own methods take or give, passed on as it is."""

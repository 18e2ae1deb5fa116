"""Counts, cuts, joins and reorders nested batches of arrays, for any framework."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

Batch = Any
"""An array, or tuples, lists and dicts of arrays and ``None``, at any depth."""


def map_leaves(change: Callable[..., Any], first: Batch, *others: Batch) -> Batch:
    """The same structure with ``change`` applied to each leaf; ``None`` is a leaf.

    >>> map_leaves(lambda one, other: one + other, {"x": [1, 2]}, {"x": [10, 20]})
    {'x': [11, 22]}
    """
    if isinstance(first, dict):
        return {
            key: map_leaves(change, *(every[key] for every in (first, *others))) for key in first
        }
    if isinstance(first, (tuple, list)):
        parts = [map_leaves(change, *together) for together in zip(first, *others, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return change(first, *others)


def leaves_of(batch: Batch) -> list[Any]:
    """All leaves of a structure except ``None``, from left to right."""
    return [leaf for leaf in _every_leaf(batch) if leaf is not None]


def has_gaps(batch: Batch) -> bool:
    """Whether any leaf is ``None``."""
    return any(leaf is None for leaf in _every_leaf(batch))


def _every_leaf(batch: Batch) -> list[Any]:
    found: list[Any] = []
    map_leaves(found.append, batch)
    return found


def is_a(thing: object, package: str, path: str) -> bool:
    """Whether this is an instance of a package's class, without importing the package."""
    found: Any = sys.modules.get(package)
    for name in path.split("."):
        found = getattr(found, name, None)
    return isinstance(found, type) and isinstance(thing, found)


def is_array(leaf: object) -> bool:
    """Whether it has a first axis."""
    shape = getattr(leaf, "shape", None)
    return shape is not None and getattr(shape, "rank", True) is not None and len(shape) > 0


def rows_in(batch: Batch) -> int:
    """The number of samples in a batch.

    Raises:
        ValueError: It has no array, something else, or arrays of different lengths.
    """
    leaves = leaves_of(batch)
    for leaf in leaves:
        if not is_array(leaf):
            raise ValueError(
                "a batch must contain arrays with samples along the first axis, not "
                f"{_shown(leaf)}: give complete batches, not single samples"
            )
    counts = sorted({int(leaf.shape[0]) for leaf in leaves})
    if not counts:
        raise ValueError("a batch without any array has no samples")
    if len(counts) > 1:
        raise ValueError(f"the arrays of one batch must be equally long, not {counts}")
    return counts[0]


def cut(batch: Batch, start: int, stop: int) -> Batch:
    """Samples ``start`` to ``stop``; the batch itself where these are all."""
    if start == 0 and stop == rows_in(batch):
        return batch
    return map_leaves(lambda leaf: None if leaf is None else leaf[start:stop], batch)


def joined(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches."""
    if len(batches) == 1:
        return batches[0]
    return map_leaves(lambda *pieces: _joined_arrays(pieces), *batches)


def reordered(batch: Batch, rows: Any) -> Batch:  # noqa: ANN401
    """The samples with these indices, a NumPy array of integers."""

    def taken(leaf: Any) -> Any:  # noqa: ANN401
        if _is_of("tensorflow", leaf):
            return sys.modules["tensorflow"].gather(leaf, rows)
        return None if leaf is None else leaf[rows]

    return map_leaves(taken, batch)


def array_of(leaf: Any) -> Any:  # noqa: ANN401
    """A pandas table as an array; anything else unchanged."""
    return leaf.to_numpy() if hasattr(leaf, "iloc") else leaf


def one_a_row(values: Sequence[float], like: Any) -> Any:  # noqa: ANN401
    """A float32 number per row, with as many axes as ``like``, all but the first of size 1.

    A torch tensor if ``like`` is one, else a NumPy array.
    """
    shape = (-1,) + (1,) * (len(like.shape) - 1)
    if is_a(like, "torch", "Tensor"):
        torch = sys.modules["torch"]
        return torch.tensor(values, dtype=torch.float32, device=like.device).reshape(shape)
    return _numpy().asarray(values, dtype="float32").reshape(shape)


def scaled_rows(leaf: Any, factors: Sequence[float]) -> Any:  # noqa: ANN401
    """Each row times its factor, as floating point."""
    if is_a(leaf, "torch", "Tensor"):
        return leaf * one_a_row(factors, leaf)
    leaf = _numpy().asarray(leaf)
    by_row = one_a_row(factors, leaf)
    if leaf.dtype.kind == "f":
        return leaf * by_row.astype(leaf.dtype)
    return leaf.astype("f4") * by_row


def _joined_arrays(pieces: tuple[Any, ...]) -> Any:  # noqa: ANN401
    first = pieces[0]
    if first is None:
        return None
    if is_a(first, "torch", "Tensor"):
        return sys.modules["torch"].cat(pieces)
    if _is_of("tensorflow", first):
        return sys.modules["tensorflow"].concat(pieces, 0)
    if _is_of("jax", first):
        return sys.modules["jax"].numpy.concatenate(pieces)
    if not hasattr(first, "__array__"):
        raise ValueError(f"samples of {_shown(first)} cannot be concatenated: use NumPy arrays")
    return _numpy().concatenate(pieces)


def _is_of(framework: str, leaf: object) -> bool:
    """Check by the module of its class, without importing the framework."""
    roots = {"jax": ("jax", "jaxlib")}.get(framework, (framework,))
    return type(leaf).__module__.split(".")[0] in roots


def _numpy() -> Any:  # noqa: ANN401
    """Imported late: arrays other than torch's imply NumPy."""
    import numpy

    return numpy


def _shown(leaf: object) -> str:
    return f"{leaf!r:.40} of type {type(leaf).__name__}"

"""How many samples a batch holds, whatever the framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_DEEPEST: Final = 8


def rows_of(batch: Any) -> int:  # noqa: ANN401
    """Samples in a batch, from the shape of its first array; 0 where none can be seen.

    Looks at shapes only: no value is fetched from a device.
    """
    try:
        first = batch[0] if type(batch) in (tuple, list) else batch
        if not hasattr(first, "shape"):
            first = _first_array(first)
        return int(first.shape[0])
    except Exception:  # noqa: BLE001 (whatever a batch is, the training goes on)
        return 0


def _first_array(batch: Any) -> Any:  # noqa: ANN401
    for _ in range(_DEEPEST):
        if isinstance(batch, (tuple, list)):
            batch = batch[0]
        elif isinstance(batch, Mapping):  # such as a dict, or what a tokenizer makes
            batch = next(iter(batch.values()))
        else:
            break
    return batch

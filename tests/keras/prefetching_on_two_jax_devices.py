"""A process of its own: batches on the second of two devices of JAX, and spread over both."""

from __future__ import annotations

import json
import threading
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainer_hooks.prefetch import prefetch_to_device

FIRST, SECOND = jax.devices()
SPREAD = NamedSharding(Mesh(np.array([FIRST, SECOND]), ("rows",)), PartitionSpec("rows"))


def batches() -> Any:
    return [
        {"rows": np.full((4, 2), number, "float32"), "labels": np.full(4, number)}
        for number in range(4)
    ]


def places(device: Any) -> list[str]:
    """On which devices each array of each batch is."""
    arrays = [
        array for batch in prefetch_to_device(batches(), device=device) for array in batch.values()
    ]
    return sorted({"+".join(str(number) for number in ids_of(array)) for array in arrays})


def ids_of(array: Any) -> list[int]:
    return sorted(device.id for device in array.devices())


def recorded() -> dict[str, Any]:
    with jax.default_device(SECOND):
        of_the_block = places(None)
        (unbound,) = prefetch_to_device([np.ones(3)])
        free = jax.device_put(unbound, FIRST) + jax.device_put(np.ones(3), FIRST)
    return {
        "default": places(None),
        "block": of_the_block,
        "one": places(SECOND),
        "spread": places(SPREAD),
        "a tree": places({"rows": SPREAD, "labels": FIRST}),
        "unbound": str(next(iter(free.devices())).id),
        "uneven": uneven(),
        "threads": threading.active_count(),
    }


def uneven() -> list[str]:
    """A batch that cannot be spread comes as an error, after those that can."""
    outcomes = []
    ahead = iter(prefetch_to_device([np.ones((4, 2)), np.ones((3, 2))], device=SPREAD))
    outcomes.append(str(next(ahead).shape))
    try:
        next(ahead)
    except ValueError:
        outcomes.append("ValueError")
    return outcomes


if __name__ == "__main__":
    print(json.dumps(recorded()))

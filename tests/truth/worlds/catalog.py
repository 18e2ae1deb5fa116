"""All kinds of worlds, and the seeds that a detector may and may not be tuned on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.truth.worlds.draws import Draws
from tests.truth.worlds.kind import MS_PER_HOUR, Kind, kind_of
from tests.truth.worlds.late_loaders import (
    augmentation,
    cold_cache,
    epoch_restart,
    loader_in_training,
    noisy_neighbour,
    shard_fetch,
    shared_loader,
    short_stalls,
    slow_storage,
    starved_with_checkpoints,
    two_strangers,
    worker_waves,
)
from tests.truth.worlds.other_pauses import (
    checkpoints,
    healthy_prefetch,
    host_bound,
    many_gpus,
    rounds,
    throttled,
    unequal_gpus,
    validation,
)
from tests.truth.worlds.several import several_jobs, sweep
from tests.truth.worlds.truth import World
from tests.truth.worlds.without_training import inference_server, notebook, unused

_LISTED: Final = (
    kind_of(worker_waves, is_visible=True, is_late=True),
    kind_of(slow_storage, is_visible=True, is_late=True),
    kind_of(cold_cache, is_visible=True, is_late=True),
    kind_of(epoch_restart, is_visible=True, is_late=True),
    kind_of(augmentation, is_visible=True, is_late=True),
    kind_of(shard_fetch, is_visible=True, is_late=True),
    kind_of(shared_loader, is_visible=True, is_late=True),
    kind_of(two_strangers, is_visible=True, is_late=True),
    kind_of(noisy_neighbour, is_visible=True, is_late=True),
    kind_of(starved_with_checkpoints, is_visible=True, is_late=True),
    kind_of(several_jobs, is_visible=True, is_late=True),
    kind_of(short_stalls, is_visible=False, is_late=True),
    kind_of(loader_in_training, is_visible=False, is_late=True),
    kind_of(healthy_prefetch, is_visible=True, is_late=False),
    kind_of(checkpoints, is_visible=True, is_late=False),
    kind_of(many_gpus, is_visible=True, is_late=False),
    kind_of(validation, is_visible=True, is_late=False),
    kind_of(host_bound, is_visible=False, is_late=False),
    kind_of(unequal_gpus, is_visible=False, is_late=False),
    kind_of(throttled, is_visible=True, is_late=False),
    kind_of(rounds, is_visible=True, is_late=False),
    kind_of(sweep, is_visible=True, is_late=False),
    kind_of(inference_server, is_visible=False, is_late=False),
    kind_of(notebook, is_visible=True, is_late=False),
    kind_of(unused, is_visible=True, is_late=False),
)

KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in _LISTED})

DEVELOPMENT_SEEDS: Final = range(1_000)
"""Worlds that a detector and its thresholds may be tuned on; no others."""

EVALUATION_SEEDS: Final = range(200_000, 201_000)
"""Worlds that accuracy is measured on. Nobody tunes on them, nor looks at one of them to mend a
detector: a figure that was tuned for says nothing. Whoever changes the detector after having read
such a figure moves on to seeds that nobody has seen. 100,000 to 100,011 were used up so."""


def world(kind: str, seed: int, hours: float = 2.0) -> World:
    """The world of this kind and seed: the same on every machine.

    Args:
        kind: A key of ``KINDS``.
        seed: Any whole number from 0.
        hours: How long it is watched; the first minutes do not depend on it
            alone, so that worlds of other lengths are other worlds.

    Raises:
        KeyError: There is no such kind.
    """
    duration_ms = round(hours * MS_PER_HOUR)
    return World(kind, seed, duration_ms, KINDS[kind].make(Draws.of(kind, seed), duration_ms))

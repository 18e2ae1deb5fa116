"""All kinds of workloads, and the seeds that a detector may and may not be tuned on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.core.verdict import LikelyCause
from tests.truth.workloads.draws import Draws
from tests.truth.workloads.kind import MS_PER_HOUR, Kind, kind_of
from tests.truth.workloads.late_loaders import (
    augmentation,
    cold_cache,
    epoch_restart,
    late_on_many_gpus,
    late_rank,
    late_validation,
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
from tests.truth.workloads.other_pauses import (
    asynchronous_checkpoints,
    blips,
    checkpoints,
    federated_client,
    frequent_checkpoints,
    generation,
    healthy_prefetch,
    host_bound,
    lives_on,
    many_gpus,
    many_gpus_that_spin,
    roll_outs,
    rounds,
    scores_on_the_host,
    throttled,
    unequal_gpus,
    validation,
)
from tests.truth.workloads.several import several_jobs, sweep
from tests.truth.workloads.truth import Workload
from tests.truth.workloads.without_training import (
    desktop,
    inference_server,
    notebook,
    requests_by_hand,
    unused,
)

_LISTED: Final = (
    kind_of(worker_waves, LikelyCause.LATE_INPUT),
    kind_of(slow_storage, LikelyCause.LATE_INPUT),
    kind_of(cold_cache, LikelyCause.LATE_INPUT),
    kind_of(epoch_restart, LikelyCause.LATE_INPUT),
    kind_of(augmentation, LikelyCause.LATE_INPUT),
    kind_of(shard_fetch, LikelyCause.LATE_INPUT),
    kind_of(shared_loader, LikelyCause.LATE_INPUT),
    kind_of(two_strangers, LikelyCause.LATE_INPUT),
    kind_of(noisy_neighbour, LikelyCause.LATE_INPUT),
    kind_of(starved_with_checkpoints, LikelyCause.LATE_INPUT),
    kind_of(several_jobs, LikelyCause.LATE_INPUT),
    kind_of(late_validation, LikelyCause.LATE_INPUT, is_visible=False),
    kind_of(late_on_many_gpus, LikelyCause.LATE_INPUT),
    kind_of(late_rank, LikelyCause.LATE_INPUT),
    kind_of(short_stalls, LikelyCause.LATE_INPUT, is_visible=False),
    kind_of(loader_in_training, LikelyCause.LATE_INPUT, is_visible=False),
    kind_of(healthy_prefetch, None),
    kind_of(checkpoints, LikelyCause.EVERY_N_STEPS),
    kind_of(many_gpus, LikelyCause.EVERY_N_STEPS),
    kind_of(validation, LikelyCause.EVERY_N_STEPS),
    kind_of(host_bound, None, is_visible=False),
    kind_of(unequal_gpus, None, is_visible=False),
    kind_of(throttled, None),
    kind_of(rounds, LikelyCause.OTHER_MACHINES),
    kind_of(sweep, None),
    kind_of(inference_server, LikelyCause.REQUESTS, is_visible=False),
    kind_of(notebook, LikelyCause.REQUESTS),
    kind_of(unused, None),
    kind_of(asynchronous_checkpoints, LikelyCause.EVERY_N_STEPS),
    kind_of(frequent_checkpoints, LikelyCause.EVERY_N_STEPS),
    kind_of(scores_on_the_host, LikelyCause.EVERY_N_STEPS),
    kind_of(federated_client, LikelyCause.OTHER_MACHINES),
    kind_of(blips, LikelyCause.EVERY_N_STEPS),
    kind_of(roll_outs, LikelyCause.EVERY_N_STEPS),
    kind_of(generation, LikelyCause.EVERY_N_STEPS),
    kind_of(lives_on, LikelyCause.EVERY_N_STEPS),
    kind_of(many_gpus_that_spin, LikelyCause.EVERY_N_STEPS),
    kind_of(requests_by_hand, LikelyCause.REQUESTS, is_visible=False),
    kind_of(desktop, LikelyCause.REQUESTS, is_visible=False),
)

KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in _LISTED})

DEVELOPMENT_SEEDS: Final = range(1_000)
"""Workloads that a detector and its thresholds may be tuned on; no others."""

TRAINING_SEEDS: Final = range(300_000, 301_000)
"""Workloads that the model of suspicion is fitted on."""

EVALUATION_SEEDS: Final = range(270_000, 271_000)
"""Workloads that accuracy is measured on. No one tunes on them, nor looks at one of them to fix a
detector: a figure that was tuned for says nothing. Whoever changes the detector after having read
such a figure moves on to seeds that no one has seen. 100,000 to 100,011, 200,000 to 200,011,
210,000 to 210,059, 220,000 to 220,079, 230,000 to 230,079, 240,000 to 240,049, 250,000 to
250,015 and 260,000 to 260,031 were used up so."""


def workload(kind: str, seed: int, hours: float = 2.0) -> Workload:
    """The workload of this kind and seed: the same on every machine.

    Args:
        kind: A key of ``KINDS``.
        seed: Any whole number from 0.
        hours: How long it is watched; the first minutes do not depend on it
            alone, so that workloads of other lengths are other workloads.

    Raises:
        KeyError: There is no such kind.
    """
    duration_ms = round(hours * MS_PER_HOUR)
    return Workload(kind, seed, duration_ms, KINDS[kind].make(Draws.of(kind, seed), duration_ms))

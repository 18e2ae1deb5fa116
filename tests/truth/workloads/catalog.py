"""All kinds of workloads, and the seeds that a detector may and may not be tuned on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tests.truth.workloads import late_loaders as late
from tests.truth.workloads import other_pauses as other
from tests.truth.workloads import several
from tests.truth.workloads import without_training as untagged
from tests.truth.workloads.draws import Draws
from tests.truth.workloads.truth import GpuTruth, Workload

MS_PER_HOUR: Final = 3_600_000

Make = Callable[[Draws, int], tuple[GpuTruth, ...]]
"""From the draws and the duration in ms to what happened on each GPU."""


class Kind(NamedTuple):
    """One kind of workload.

    Attributes:
        make: Draws what happened; its docstring has the ranges.
        is_late: Whether a loader is late; in other kinds at most 2 % is starved, at a job's begin.
        is_visible: Whether its pauses are long enough for a driver's window to show them.
    """

    make: Make
    is_late: bool
    is_visible: bool


_LATE: Final = (
    late.worker_waves, late.slow_storage, late.cold_cache, late.epoch_restart, late.augmentation,
    late.shard_fetch, late.shared_loader, late.two_strangers, late.noisy_neighbour,
    late.starved_with_checkpoints, several.several_jobs, late.late_validation,
    late.late_on_many_gpus, late.late_rank, late.short_stalls, late.loader_in_training,
)  # fmt: skip
_OTHERS: Final = (
    other.healthy_prefetch, other.checkpoints, other.many_gpus, other.validation, other.host_bound,
    other.unequal_gpus, other.throttled, other.rounds, several.sweep, untagged.inference_server,
    untagged.notebook, untagged.unused, other.asynchronous_checkpoints,
    other.frequent_checkpoints, other.scores_on_the_host, other.federated_client, other.blips,
    other.roll_outs, other.generation, other.lives_on, other.many_gpus_that_spin,
    untagged.requests_by_hand, untagged.desktop,
)  # fmt: skip
_NOT_VISIBLE: Final = {
    "late_validation", "short_stalls", "loader_in_training", "host_bound", "unequal_gpus",
    "inference_server", "requests_by_hand", "desktop",
}  # fmt: skip
UNTAGGED: Final = ("inference_server", "notebook", "unused", "requests_by_hand", "desktop")
"""Kinds without training, so without tags."""

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        make.__name__: Kind(make, make in _LATE, make.__name__ not in _NOT_VISIBLE)
        for make in (*_LATE, *_OTHERS)
    }
)

DEVELOPMENT_SEEDS: Final = range(1_000)
"""Seeds that a detector and its thresholds may be tuned on; no others."""

TRAINING_SEEDS: Final = range(300_000, 301_000)
"""Seeds that the model of suspicion is fitted on."""

EVALUATION_SEEDS: Final = range(270_000, 271_000)
"""Seeds that accuracy is measured on. A detector that was tuned on them proves nothing: whoever
changes it after reading such a figure must move on to unseen seeds. Used up: 100,000 to 100,011,
200,000 to 200,011, 210,000 to 210,059, 220,000 to 220,079, 230,000 to 230,079, 240,000 to 240,049,
250,000 to 250,015 and 260,000 to 260,031."""


def workload(kind: str, seed: int, hours: float = 2.0) -> Workload:
    """The workload of this kind and seed: the same on every machine.

    A workload of another length is another workload: its first minutes differ, too.

    Raises:
        KeyError: There is no such kind.
    """
    duration_ms = round(hours * MS_PER_HOUR)
    return Workload(kind, seed, duration_ms, KINDS[kind].make(Draws.of(kind, seed), duration_ms))

"""Synthetic machines whose pauses come from programs that contend for cores, disks and peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.truth.programs import programs
from tests.truth.programs.engine import Machine
from tests.truth.workloads.truth import Workload

_LATE: Final = (
    programs.jpeg_few_workers, programs.loader_in_the_loop, programs.segmentation_augmented,
    programs.video_clips, programs.object_store_shards, programs.busy_network_disk,
    programs.cold_cache, programs.late_data_parallel, programs.two_late_jobs,
    programs.batch_inference,
)  # fmt: skip
_OTHERS: Final = (
    programs.jpeg_enough_workers, programs.packed_tokens, programs.tabular_tiny_steps,
    programs.finetune_checkpoints, programs.finetune_asynchronous_checkpoints,
    programs.generation_evaluation, programs.roll_outs, programs.gan_images,
    programs.two_checkpointing_jobs, programs.federated_client, programs.slow_rank,
    programs.pipeline_bubbles, programs.llm_server, programs.notebook,
)  # fmt: skip
KINDS: Final[Mapping[str, Callable[[Machine], None]]] = {
    program.__name__: program for program in (*_LATE, *_OTHERS)
}
LATE: Final = frozenset(program.__name__ for program in _LATE)
"""The kinds whose input is late."""


def machine(kind: str, seed: int, hours: float) -> Workload:
    """One machine of a kind in ``KINDS``; a shorter one with the same seed is a prefix of it."""
    made = Machine(kind, seed, hours)
    KINDS[kind](made)
    return made.run()

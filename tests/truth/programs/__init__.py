"""Synthetic machines whose pauses come from programs that contend for cores, disks and peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gpumon.core.verdict import LikelyCause
from tests.truth.programs import programs
from tests.truth.programs.engine import Machine
from tests.truth.workloads.truth import Workload

_PROGRAMS: Final[dict[Callable[[Machine], None], LikelyCause | None]] = {
    programs.jpeg_few_workers: LikelyCause.LATE_INPUT,
    programs.loader_in_the_loop: LikelyCause.LATE_INPUT,
    programs.segmentation_augmented: LikelyCause.LATE_INPUT,
    programs.video_clips: LikelyCause.LATE_INPUT,
    programs.object_store_shards: LikelyCause.LATE_INPUT,
    programs.busy_network_disk: LikelyCause.LATE_INPUT,
    programs.cold_cache: LikelyCause.LATE_INPUT,
    programs.late_data_parallel: LikelyCause.LATE_INPUT,
    programs.two_late_jobs: LikelyCause.LATE_INPUT,
    programs.batch_inference: LikelyCause.LATE_INPUT,
    programs.jpeg_enough_workers: None,
    programs.packed_tokens: None,
    programs.tabular_tiny_steps: None,
    programs.finetune_checkpoints: LikelyCause.EVERY_N_STEPS,
    programs.finetune_asynchronous_checkpoints: LikelyCause.EVERY_N_STEPS,
    programs.generation_evaluation: LikelyCause.EVERY_N_STEPS,
    programs.roll_outs: LikelyCause.EVERY_N_STEPS,
    programs.gan_images: LikelyCause.EVERY_N_STEPS,
    programs.two_checkpointing_jobs: LikelyCause.EVERY_N_STEPS,
    programs.federated_client: LikelyCause.OTHER_MACHINES,
    programs.slow_rank: LikelyCause.OTHER_MACHINES,
    programs.pipeline_bubbles: LikelyCause.OTHER_MACHINES,
    programs.llm_server: LikelyCause.REQUESTS,
    programs.notebook: None,
}
_BY_NAME: Final = {program.__name__: program for program in _PROGRAMS}
KINDS: Final[Mapping[str, LikelyCause | None]] = {
    program.__name__: lost_to for program, lost_to in _PROGRAMS.items()
}
"""The main cause of idle time of each kind; ``None``: little, or no named cause."""


def machine(kind: str, seed: int, hours: float) -> Workload:
    """One machine of a kind in ``KINDS``; a shorter one with the same seed is a prefix of it."""
    made = Machine(kind, seed, hours)
    _BY_NAME[kind](made)
    return made.run()

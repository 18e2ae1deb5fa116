"""Thirty inputs and four recordings, and the first sentence of the report on each.

The recordings were made by older versions; the sentence on each must not change.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpumon.core.accounting.rank_wait import RankWait
from gpumon.core.device.idle_holder import HeldGpu
from gpumon.core.device.troubles import lost
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import GpuReport, Report, RunReport
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.wording import capital
from gpumon.outlets.text.headline import verdict_line
from tests.builders.logs import analysed, smi_log
from tests.builders.report import (
    filled,
    gpm_fill,
    gpu,
    mig_part,
    power_fill,
    rank_of,
    report,
    run,
    with_totals,
)
from tests.builders.time import s
from tests.command_line import Shell
from tests.golden_files import Chapters, golden_story

WAIT, UNKNOWN, SAVE, STEP = (
    IdleCause.INPUT_WAIT, IdleCause.UNKNOWN, IdleCause.CHECKPOINT, IdleCause.WITHIN_STEP
)  # fmt: skip
NOT_IN_USE = IdleCause.NOT_IN_USE
BUSY, IDLE = [97] * 10, [0] * 10
RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
OLDER = ("fake_boards", "nvidia-h100-80gb-hbm3", "nvidia-h100-80gb-hbm3-keras", "nvidia-h200")


def of(*gpus: GpuReport, runs: tuple[RunReport, ...] = ()) -> str:
    """The first line of a report on these GPUs."""
    return line_of(report(*gpus, runs=runs))


def line_of(one: Report) -> str:
    return capital(verdict_line(one))


def of_log(percents: list[int], every_s: float = 1.0) -> str:
    return line_of(analysed(smi_log(percents, every_s)))


@golden_story
def test_first_sentences(gpumon: Shell) -> Chapters:
    def of_recording(name: str) -> str:
        replayed = gpumon("replay", RECORDINGS / f"{name}.gpumon").out
        return " ".join(replayed.partition("\nWhy:")[0].split())

    silent = RunSilence(s(5), TrainingPhase.INPUT_WAIT, s(360), is_first_batch=True)
    late = RankWait("train-r2", 2, WAIT.value)
    waits = replace(
        with_totals(gpu(100), rank_wait_low_ns=s(30), rank_wait_high_ns=s(30)), waits_for=late
    )
    may_wait = replace(with_totals(gpu(100), rank_wait_high_ns=s(30)), waits_for=late)
    held = HeldGpu(4711, user="1000", command=None, memory_bytes=20 << 30, since_ns=s(7))
    return {
        "input wait, proved": of(gpu(40, {WAIT: 20})),
        "input wait, a range": of(
            with_totals(
                gpu(70, {WAIT: 30}), may_be_less_ns={WAIT: s(20)}, may_be_more_ns={STEP: s(20)}
            )
        ),
        "input wait on the second of three GPUs": of(
            gpu(98), gpu(40, {WAIT: 20}, index=1), gpu(45, {WAIT: 15}, index=2)
        ),
        "checkpoints": of(gpu(40, {SAVE: 20})),
        "checkpoints, and more that is unknown": of(gpu(83, {UNKNOWN: 9, SAVE: 8})),
        "either of two causes": of(
            with_totals(
                gpu(66, {WAIT: 30, STEP: 4}),
                may_be_less_ns={WAIT: s(27)},
                may_be_more_ns={STEP: s(27)},
            )
        ),
        "a late rank": of(waits, runs=tuple(rank_of(rank, 0.9) for rank in range(3))),
        "perhaps a late rank": of(may_wait, runs=tuple(rank_of(rank, 0.9) for rank in range(3))),
        "untagged pauses": of(gpu(40, {UNKNOWN: 20}, suspected_s=18, pauses=9)),
        "two untagged pauses": of(gpu(20, {UNKNOWN: 40}, pauses=2)),
        "a level": of(gpu(20, {UNKNOWN: 40})),
        "tags that explain too little": of(gpu(40, {UNKNOWN: 56, SAVE: 4})),
        "a healthy GPU": of(gpu(98, {UNKNOWN: 2})),
        "healthy GPUs": of(*(gpu(100, index=at) for at in range(8))),
        "low SM utilisation": of(filled(gpm_fill(0.24))),
        "low power": of(filled(power_fill(180.0))),
        "no work": of(gpu(0, {NOT_IN_USE: 600})),
        "work for a moment": of(gpu(3, {NOT_IN_USE: 7})),
        "a GPU that a process holds": of(replace(gpu(0, {NOT_IN_USE: 3600}), held=held)),
        "a lost GPU": of(
            gpu(60), replace(gpu(10, index=1), reported_troubles=(lost("GPU is lost", index=1),))
        ),
        "an instance without data": of(mig_part(1)),
        "no GPU": of(),
        "a run on no GPU": of(runs=(replace(run(), gpu_uuids=()),)),
        "a run that waits for its first batch": of(
            runs=(replace(run(), gpu_uuids=(), silence=silent),)
        ),
        "a run that hangs": of(
            runs=(replace(run(), gpu_uuids=(), silence=silent._replace(hanging_from_ns=s(300))),)
        ),
        "a log of a busy GPU": of_log(BUSY * 12),
        "a log of pauses": of_log((BUSY[:6] + IDLE[:4]) * 12),
        "a log that ends idle": of_log(BUSY * 60 + IDLE * 120),
        "a log of few samples": of_log([100, 0, 85], 900),
        **{f"the recording {name}": of_recording(name) for name in OLDER},
        "a log of two pauses": of_log(BUSY * 4 + IDLE * 2 + BUSY * 4 + IDLE * 2 + BUSY * 3),
    }

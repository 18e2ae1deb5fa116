"""Advice, pinned word for word: each chapter is a small machine and all the advice on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpumon.core.accounting.rank_wait import RankWait
from gpumon.core.attribution.visible_devices import GpuName, problem_with_names, problem_with_work
from gpumon.core.device.job_measurements import InJob, ProcessOnGpu
from gpumon.core.device.sm_utilisation import GpuFill
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.imbalance_advice import imbalance_notes
from gpumon.core.phase import CAUSES, IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.report import GpuReport, RunReport
from gpumon.core.waits.reasons import WaitReason
from gpumon.core.waits.wait_rules import LoaderPlace, ShortOf
from gpumon.outlets.text.style import wrapped
from tests.builders.report import (
    filled,
    gpm_fill,
    gpu,
    mean,
    power_fill,
    rank_of,
    run,
    shared_run,
    wait,
    with_totals,
)
from tests.builders.time import s
from tests.golden_files import Chapters, golden_story

WAIT, UNKNOWN, NOT_IN_USE = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN, IdleCause.NOT_IN_USE
CPU, GIL, DISK, NETWORK, MEMORY, LATENCY = [*InputWaitReason][:6]
THREADS, TRAINING = LoaderPlace.THREADS, LoaderPlace.TRAINING_THREAD
CORES = ShortOf.CORES
SAVE, TUNE = IdleCause.CHECKPOINT, IdleCause.IMBALANCE
LATE = gpu(40, {WAIT: 20})
UNTAGGED = gpu(20, {UNKNOWN: 40})


def advised(gpus: GpuReport | Sequence[GpuReport], *runs: RunReport) -> str:
    """Each advice: on what, for whom, the most it gains, what it rests on, what to do."""
    gpus = [gpus] if isinstance(gpus, GpuReport) else gpus
    lines = []
    for advice in advise(gpus, runs):
        bound = advice.speedup_upper_bound
        gain = "no speed-up promised" if bound is None else f"at most {bound:.2f} times as fast"
        lines += [
            f"{advice.cause}, GPU {', '.join(advice.gpus) or '-'}: {gain}",
            *wrapped(advice.evidence, first="  because "),
            *wrapped(advice.text, first="  do      "),
        ]
    return "\n".join(lines) or "nothing"


def in_phases(**seconds: float) -> dict[TrainingPhase, int]:
    return {TrainingPhase(name): s(amount) for name, amount in seconds.items()}


@golden_story
def test_advice_on_input() -> Chapters:
    def reasons(**seconds: float) -> GpuReport:
        by_reason = {reason: s(amount) for reason, amount in seconds.items()}
        return with_totals(LATE, input_wait_by_reason_ns=by_reason)

    def validates(late_s: float) -> GpuReport:
        return with_totals(gpu(50, {WAIT: 50}), validation_input_wait_ns=s(late_s))

    ranks = [replace(run(workers=1, prefetch=0), run=f"train-r{rank}") for rank in range(3)]
    threads = run(workers=4, use_multiprocessing=False)
    slow_reasons = (
        "cpu_bound", "gil_bound", "disk_bound", "network_bound", "memory_pressure", "latency_bound",
    )  # fmt: skip
    return {
        "nothing is known of the loader": advised(LATE),
        "two GPUs wait": advised([LATE, gpu(50, {WAIT: 10}, index=1)]),
        "a part of the wait was hidden": advised(gpu(40, {WAIT: 20}, hidden_s=12)),
        "next to nothing of it was hidden": advised(gpu(40, {WAIT: 20}, hidden_s=0.05)),
        **{f"most of it is {reason}": advised(reasons(**{reason: 15})) for reason in slow_reasons},
        "no reason explains half of it": advised(reasons(cpu_bound=8, disk_bound=8)),
        "the loader has one worker": advised(LATE, run(workers=1)),
        "its workers are threads": advised(LATE, threads),
        "it prefetches nothing": advised(LATE, run(prefetch=0)),
        "it is the loader of another GPU": advised(LATE, replace(run(workers=1), gpu_uuids=("7",))),
        "three ranks share two faults": advised(LATE, *ranks),
        "one run has one fault, two have another": advised(
            LATE, replace(ranks[0], loader={"workers": 1}), *(replace(threads, run=x) for x in "bc")
        ),
        "mostly the validation data are late": advised(validates(40), run(workers=0)),
        "the validation data are late as well": advised(validates(10), run(workers=0)),
        "the validation's loader is known": advised(
            validates(40),
            run(validation_kind="DataLoader", validation_workers=0, validation_class="Held"),
        ),
        "mostly the first batches of epochs are late": advised(
            with_totals(gpu(40, {WAIT: 20}), epoch_input_wait_ns=s(15))
        ),
        "the first batch was late": advised(
            with_totals(gpu(60, {WAIT: 50}), first_input_wait_ns=s(20))
        ),
        "the GPU pauses for the greatest of its losses": advised(
            gpu(40, {WAIT: 12, UNKNOWN: 8, SAVE: 10}, pauses=10)
        ),
        "the GPU pauses for something else": advised(gpu(40, {WAIT: 3, SAVE: 20}, pauses=4)),
        "two GPUs pause for two reasons": advised(
            [gpu(40, {WAIT: 20}, pauses=10), gpu(40, {UNKNOWN: 9}, index=1, pauses=5)]
        ),
    }


@golden_story
def test_advice_on_why_input_is_late() -> Chapters:
    def late(why: WaitReason, wait: float = 20, **loader: Any) -> str:
        by_reason = {why.reason.value: s(wait)}
        waited = with_totals(gpu(40, {WAIT: wait}), input_wait_by_reason_ns=by_reason)
        return advised(waited, replace(run(**loader), reasons=(why,)))

    torch: dict[str, Any] = {"kind": "DataLoader", "class": "Photos", "made_at": "train.py:42"}
    keras: dict[str, Any] = {"kind": "PyDataset", "class": "Slow", "made_at": "train.py:7"}
    generator: dict[str, Any] = {"kind": "generator", "class": "batches", "defined_at": "data.py:9"}
    few = wait(CPU, tasks=1, wanted=1.01, given=1.0, usable=8)
    return {
        "one worker of torch is too few": late(few, **torch, workers=1),
        "four workers are too few, and there are not enough cores for as many as it takes": late(
            wait(CPU, tasks=4, wanted=4.0, given=3.9, usable=6), wait=40, **torch, workers=4
        ),
        "four workers on two cores": late(
            wait(CPU, tasks=4, wanted=4.0, given=2.0, usable=2, short_of=CORES), **torch, workers=4
        ),
        "two workers on two cores, both at work": late(
            wait(CPU, tasks=2, wanted=2.0, given=1.8, usable=2), **torch, workers=2
        ),
        "the same where others use a core": late(
            wait(CPU, tasks=4, wanted=4.0, given=1.1, usable=2, short_of=CORES), **torch, workers=4
        ),
        "the same where a quota holds them back": late(
            wait(CPU, tasks=4, wanted=4.0, given=2.0, usable=2, short_of=CORES, throttled=0.4),
            **torch, workers=4
        ),
        "the training thread makes its batches": late(
            wait(CPU, tasks=1, wanted=0.8, given=0.8, usable=8, place=TRAINING), **torch, workers=0
        ),
        "it does so on too few cores": late(
            wait(CPU, tasks=1, wanted=1.0, given=0.6, usable=1, place=TRAINING, short_of=CORES),
            **generator
        ),
        "four workers take turns at a lock": late(
            wait(InputWaitReason.UNKNOWN, tasks=4, wanted=1.0, given=1.0, usable=8, locked=0.75),
            **torch, workers=4
        ),
        "the one that holds it sleeps": late(
            wait(LATENCY, tasks=0, wanted=0.0, given=0.0, usable=8, locked=0.75),
            **torch, workers=4
        ),
        "it does so in a generator": late(
            wait(CPU, tasks=1, wanted=0.8, given=0.8, usable=8, place=TRAINING),
            **generator
        ),
        "it does so in tf.data": late(
            wait(CPU, tasks=1, wanted=0.9, given=0.9, usable=8, place=TRAINING), kind="tf.data"
        ),
        "threads take turns holding the GIL": late(
            wait(GIL, tasks=3, wanted=1.2, given=1.0, usable=8, place=THREADS),
            **keras, workers=3, use_multiprocessing=False
        ),
        "cold files are read": late(
            wait(DISK, tasks=1, wanted=0.9, given=0.6, read=486e6, disk_busy=0.67, also=(CPU,)),
            **torch, workers=1
        ),
        "mapped files are read": late(
            wait(DISK, tasks=1, wanted=0.5, given=0.3, major=11_403.0, disk_busy=0.74), **torch
        ),
        "another user's disk is slow": late(wait(DISK, tasks=0, wanted=0.0, given=0.0)),
        "a server is slow": late(
            wait(NETWORK, tasks=0, wanted=0.0, given=0.0, received=2.6e6), **torch, workers=2
        ),
        "memory is short": late(
            wait(MEMORY, tasks=1, wanted=0.3, given=0.2, major=400.0, memory=0.4), **torch
        ),
        "memory is short, and the kernel keeps no account of who waits for it": late(
            wait(MEMORY, tasks=1, wanted=0.3, given=0.2), **torch
        ),
        "each read takes long": late(
            wait(LATENCY, tasks=0, wanted=0.02, given=0.02), wait=70, **torch, workers=1
        ),
        "the training thread waits for each read": late(
            wait(LATENCY, tasks=0, wanted=0.02, given=0.02, place=TRAINING), **generator
        ),
        "threads that hold the GIL delay a step": advised(
            with_totals(
                gpu(40, {IdleCause.WITHIN_STEP: 20}), within_step_by_reason_ns={"gil_bound": s(15)}
            ),
            replace(
                run(**keras, workers=2),
                reasons=(wait(GIL, tasks=2, wanted=1.3, given=1.0, cause=IdleCause.WITHIN_STEP),),
            ),
        ),
    }  # fmt: skip


@golden_story
def test_advice_on_what_tags_prove() -> Chapters:
    def in_step(framework: str) -> str:
        return advised(gpu(40, {IdleCause.WITHIN_STEP: 20}), replace(run(), framework=framework))

    def in_callbacks(tagged_s: float, *more: RunReport, **spent_s: float) -> str:
        phases = {**run().phase_ns, TrainingPhase.CALLBACKS: s(tagged_s)}
        spent = {name: s(amount) for name, amount in spent_s.items()}
        one = replace(run(), phase_ns=phases, callback_ns=spent)
        return advised(gpu(40, {IdleCause.CALLBACKS: 20}), one, *more)

    def between_epochs(**loader: Any) -> str:
        return advised(gpu(50, {IdleCause.BETWEEN_EPOCHS: 50}), run(**loader))

    def at_start(compiled_s: float, **later_s: float) -> str:
        idle = {IdleCause(cause): amount for cause, amount in later_s.items()}
        one = gpu(40, {IdleCause.START_UP: 20, WAIT: 19, **idle})
        return advised(one, replace(run(), phase_ns=in_phases(compile=compiled_s)))

    photos: dict[str, Any] = {"kind": "DataLoader", "class": "Photos"}
    saver = replace(run(), run="saver", phase_ns=in_phases(checkpoint=8))
    saver = replace(saver, callback_ns={"Saves": s(8)})
    in_other_stories = (NOT_IN_USE, UNKNOWN, WAIT, IdleCause.START_UP)
    causes = [cause for cause in CAUSES if cause not in in_other_stories]
    return {
        **{f"idle for {cause.value}": advised(gpu(40, {cause: 20})) for cause in causes},
        **{
            f"within a step of {framework}": in_step(framework)
            for framework in ("keras/tensorflow", "keras/jax", "keras/torch", "loop")
        },
        "within a step of a batch that is split over GPUs": advised(
            gpu(40, {IdleCause.WITHIN_STEP: 20}), shared_run([0.6, 0.6], [0.5, 0.5])
        ),
        "copying from memory that is not pinned": advised(
            gpu(40, {IdleCause.HOST_TO_DEVICE: 20}),
            run(**photos, workers=2, pin_memory=False),
        ),
        "in callbacks, three of them known": in_callbacks(
            20, TensorBoard=15, Upload=4, History=0.1
        ),
        "in callbacks that took next to nothing": in_callbacks(0.1, History=0.1),
        "in callbacks of two runs": in_callbacks(10, saver, SlowLog=9),
        "between epochs, where the data set does something": between_epochs(
            kind="PyDataset", workers=2, epoch_hooks="on_epoch_end"
        ),
        "between epochs, where workers start again": between_epochs(
            workers=2, persistent_workers=False
        ),
        "between epochs, where they stay": between_epochs(workers=2, persistent_workers=True),
        "between epochs, where there are none": between_epochs(workers=0, persistent_workers=False),
        "between epochs of arrays": between_epochs(kind="arrays"),
        "at a start that was compiling for half of it": at_start(10),
        "at a start that was compiling for less": at_start(6),
        "at a start before most of the compiling": at_start(16, compile=12),
    }


@golden_story
def test_advice_without_tags() -> Chapters:
    def bursty(seconds: float, pauses: int, **more: Any) -> GpuReport:
        return gpu(40, {UNKNOWN: seconds}, suspected_s=seconds, pauses=pauses, **more)

    def in_loop(**seconds: float) -> str:
        return advised(UNTAGGED, replace(run(), framework="loop", phase_ns=in_phases(**seconds)))

    shutting_down = replace(run(), phase_ns=in_phases(train_step=20, other=40))
    half = replace(run(wall_s=40), phase_ns=in_phases(train_step=5, other=35))
    elsewhere = replace(run(wall_s=50), run="elsewhere", gpu_uuids=())
    few = gpu(10, {UNKNOWN: 30}, suspected_s=30, pauses=4)
    on_cpu = replace(run(workers=0, kind="torch"), gpu_uuids=(), alive=True, on_cpu=True)
    unused = [gpu(0, {NOT_IN_USE: 600}, index=at) for at in range(2)]
    hardly = [gpu(at, {NOT_IN_USE: 600}, index=at) for at in (4, 2)]
    return {
        "many short pauses": advised(bursty(20, 10)),
        "few pauses on one GPU, long ones on another": advised(
            [few, gpu(10, {UNKNOWN: 600}, suspected_s=600, pauses=6, index=1)]
        ),
        "a level": advised(UNTAGGED),
        "a run whose phases do not cover it": advised(UNTAGGED, run()),
        "a loop without tags": in_loop(other=40),
        "a loop that tags its waits": in_loop(other=40, input_wait=5),
        "a loop that tags its steps": in_loop(other=40, train_step=5),
        "a loop that tags both": in_loop(other=40, input_wait=5, train_step=5),
        "a trainer that shuts down its loader": advised(UNTAGGED, shutting_down),
        "a loop that shuts down its loader": advised(
            UNTAGGED, replace(shutting_down, framework="loop")
        ),
        "mostly before the run": advised(gpu(60, {UNKNOWN: 60}), run(wall_s=10)),
        "mostly before it, with another run on no GPU": advised(
            gpu(30, {UNKNOWN: 30}), run(wall_s=10), elsewhere
        ),
        "mostly within the run, untagged": advised(gpu(40, {UNKNOWN: 60}), half),
        "a run on no GPU": advised(UNTAGGED, replace(run(), gpu_uuids=())),
        "a run on the CPU": advised(UNTAGGED, on_cpu),
        "a run on the CPU and an unused GPU": advised(unused[0], on_cpu),
        "the same, and it is over": advised(unused[0], replace(on_cpu, alive=False)),
        "a run on the CPU and a GPU that waits for input": advised(LATE, on_cpu),
        "no work": advised(unused[0]),
        "hardly any work": advised(hardly[0]),
        "hardly any work on two GPUs": advised(hardly),
        "hardly any work, and the run is over": advised(
            replace(hardly[0], index=0, uuid="GPU-0"), replace(run(), alive=False)
        ),
        "watched for 3 s": advised(gpu(0, {NOT_IN_USE: 3})),
        "one GPU waits, and another has no work": advised([LATE, unused[1]]),
    }


@golden_story
def test_advice_on_unequal_gpus() -> Chapters:
    pair = (gpu(40, {TUNE: 20}), gpu(60, index=1))
    later = tuple(replace(one, index=at, uuid=f"GPU-{at}") for at, one in enumerate(pair, start=2))
    even = shared_run([2 / 3, 1.0], shares=[0.5, 0.5])
    level = shared_run([0.995, 1.0], shares=[0.6, 0.4])

    def clocked(ratio: float, held: float = 0.0) -> GpuFill:
        return power_fill(500.0, held=held)._replace(sm_clock=mean(ratio, 120.0))

    def in_job(fill: GpuFill | None = None, *tenants: ProcessOnGpu) -> InJob:
        return InJob(("j1",), 1, fill, s(60), tenants)

    def with_other(ratio: float | None) -> tuple[ProcessOnGpu, ProcessOnGpu]:
        itself, other = ProcessOnGpu(4711, 1000, s(60)), ProcessOnGpu(77, 1001, s(54))
        if ratio is not None:
            other = other._replace(computing_known_ns=s(54), computing_ns=s(54 * ratio))
        return itself, other

    cool = replace(pair[0], in_job=in_job(clocked(0.98)))
    hot, set_low = (
        replace(pair[1], in_job=in_job(fill)) for fill in (clocked(0.65, 0.8), clocked(0.65))
    )
    shared, unknown = (
        replace(pair[1], in_job=in_job(None, *with_other(of))) for of in (0.35, None)
    )
    crowded = replace(pair[1], in_job=in_job(clocked(0.65, 0.8), *with_other(0.35)))

    def ranks(first: int, **more: Any) -> list[RunReport]:
        return [rank_of(first + at, busy, **more) for at, busy in enumerate((2 / 3, 1.0))]

    return {
        "shares are reported": advised(pair, even),
        "shares have changed": advised(pair, replace(even, ratio_changes=2)),
        "shares are level by now": advised(pair, replace(level, ratio_changes=1)),
        "shares are known to be even": advised(pair, shared_run([2 / 3, 1.0])),
        "shares are not known": advised(pair, shared_run([2 / 3, 1.0], framework="loop")),
        "each GPU has a rank": advised(pair, *ranks(0, framework="lightning")),
        "ranks report their shares": advised(pair, *ranks(0, share=0.5)),
        "other ranks are on another machine": advised(
            later, *(replace(one, world_size=4) for one in ranks(2, framework="lightning"))
        ),
        "how busy they were in steps is unknown": advised(pair),
        "one does nothing": advised(pair, shared_run([0.0, 1.0], shares=[0.5, 0.5])),
        "the slow one is hot": advised([pair[0], hot], even),
        "its clock is lower, and its board does not say why": advised([cool, set_low], even),
        "another user computes on it": advised([pair[0], shared], even),
        "whether the other user computes is unknown": advised([pair[0], unknown], even),
        "it is another board": advised([replace(pair[0], name="NVIDIA L40S"), pair[1]], even),
        "it is given more": advised(pair, shared_run([2 / 3, 1.0], shares=[0.4, 0.6])),
        "it has less to do, and is hot, shared and another board": advised(
            [replace(cool, name="NVIDIA L40S"), crowded],
            shared_run([0.25, 1.0], shares=[0.6, 0.4]),
        ),
        "two are slow, each for its own reason": advised(
            [pair[0], hot, replace(shared, index=2, uuid="GPU-2")],
            shared_run([2 / 3, 1.0, 1.0], shares=[1 / 3] * 3),
        ),
        "its clock explains a part": advised(
            [cool, replace(hot, in_job=in_job(clocked(0.9, 0.3)))],
            shared_run([0.5, 1.0], shares=[0.5] * 2),
        ),
    }


@golden_story
def test_advice_on_late_ranks() -> Chapters:
    runs = [rank_of(rank, 0.9) for rank in range(3)]

    def waiting(index: int, low_s: float, high_s: float, cause: str) -> GpuReport:
        """A GPU in use for 100 s that waited for rank 2 for so long while it read as busy."""
        one = with_totals(
            gpu(100, index=index), rank_wait_low_ns=s(low_s), rank_wait_high_ns=s(high_s)
        )
        return replace(one, waits_for=RankWait("train-r2", 2, cause))

    late = gpu(100, index=2)
    each = [*messages.LATE_BECAUSE, IdleCause.COMPILE.value]
    return {
        **{f"late by {one}": advised([waiting(0, 30, 30, one), late], *runs) for one in each},
        "two wait": advised(
            [waiting(0, 30, 30, each[0]), waiting(1, 20, 60, each[0]), late], *runs
        ),
        "one may wait": advised([waiting(0, 0, 60, each[0]), late], *runs),
    }


@golden_story
def test_notes_on_waits_that_are_not_visible() -> Chapters:
    ranks = [
        replace(rank_of(at, 1.0, framework="lightning"), phase_ns=in_phases(train_step=100))
        for at in range(3)
    ]
    gpus = [gpu(120, index=at) for at in range(3)]
    return {
        "inside NCCL": "\n".join(imbalance_notes(gpus, ranks)),
        "for ranks on another machine": "\n".join(
            imbalance_notes(gpus[:1], [replace(ranks[0], world_size=2)])
        ),
    }


@golden_story
def test_advice_on_full_gpus() -> Chapters:
    def trained_with(framework: str) -> str:
        return advised(filled(gpm_fill(0.24)), replace(run(), framework=framework))

    return {
        "a quarter of the multiprocessors work": advised(filled(gpm_fill(0.24))),
        "just less than half of them do": advised(filled(gpm_fill(0.498))),
        "power suggests that little works": advised(filled(power_fill(180.0))),
        "the tensor cores work": advised(
            filled(gpm_fill(0.24)._replace(tensor_active=mean(0.2, 120.0)))
        ),
        "two GPUs, one of them emptier": advised(
            [filled(gpm_fill(0.4)), filled(gpm_fill(0.2), index=1)]
        ),
        **{
            f"a quarter of them work, in {framework}": trained_with(framework)
            for framework in ("keras/tensorflow", "keras/jax", "lightning", "huggingface", "loop")
        },
    }


@golden_story
def test_advice_on_names_of_gpus() -> Chapters:
    eight = [GpuName(str(index), f"GPU-{index}aa") for index in range(8)]
    partitioned = [GpuName("0", "GPU-0aa"), GpuName("0:0", "MIG-11"), GpuName("0:1", "MIG-22")]

    def at_work(names: Sequence[str] | None, **more: bool) -> str:
        return problem_with_work(names, eight[:2], **{"simulated": False, **more}, pid=42)

    problems = {
        "one of eight that there is not": problem_with_names(("0", "99"), eight),
        "the only GPU by another number": problem_with_names(("99",), eight[3:4]),
        "one of two as a framework calls it": problem_with_names(("cuda:0",), eight[:2]),
        "one of a MIG-partitioned GPU": problem_with_names(("2",), partitioned),
        "none": problem_with_names((), eight),
        "one, and no work there": at_work(("1",)),
        "not given, and no work": at_work(None),
        "not given, of simulated ones": at_work(None, simulated=True),
        "one, and the framework computes on the CPU": at_work(("1",), on_cpu=True),
        "not given, of simulated ones, on the CPU": at_work(None, simulated=True, on_cpu=True),
    }
    return {title: f"The run train {problem}." for title, problem in problems.items()}

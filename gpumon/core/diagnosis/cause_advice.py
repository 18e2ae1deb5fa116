"""The advice text for each cause of idle time, and for GPUs that were not used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from gpumon.core.attribution.visible_devices import WHAT_TO_CHECK
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.imbalance_advice import imbalance_text
from gpumon.core.diagnosis.input_advice import LossReason, input_wait_text, step_reason_text
from gpumon.core.diagnosis.loader_advice import copy_settings, epoch_settings, loader_sentences
from gpumon.core.diagnosis.log_findings import has_gaps
from gpumon.core.diagnosis.pause_messages import untagged_text
from gpumon.core.diagnosis.rank_advice import late_rank_text
from gpumon.core.diagnosis.silence_messages import run_named
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import (
    HELD,
    Advice,
    GpuReport,
    RunReport,
    idle_in,
    runs_concerned,
    runs_on,
)
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import (
    capital,
    gpus_named,
    in_gibibytes,
    in_percent,
    in_time,
    label_text,
    listed,
)

_MAX_CALLBACKS: Final = 3
_MAX_RUNS: Final = 2
_LIMITS: Final = DEFAULT_SETTINGS.advice
_TextOf: TypeAlias = Callable[[Sequence[GpuReport], Sequence[RunReport]], str]


def text_on_cause(
    cause: IdleCause,
    hit: Sequence[GpuReport],
    gpus: Sequence[GpuReport],
    runs: Sequence[RunReport],
    loss: LossReason | None,
) -> str:
    """What to change so that these GPUs lose less to a cause; ``gpus`` are all of the report."""
    match cause:
        case IdleCause.INPUT_WAIT:
            return input_wait_text(hit, runs, loss)
        case IdleCause.WITHIN_STEP:
            return within_step_text(hit, runs) if loss is None else step_reason_text(loss)
        case IdleCause.IMBALANCE:
            # The GPU that they wait for has not lost anything, and must be named.
            late = late_rank_text(hit, gpus, runs)
            return late or imbalance_text(hit, gpus, runs) or messages.IMBALANCE
    text = _TEXTS[cause]
    return text if isinstance(text, str) else text(hit, runs)


def callbacks_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """What to do about slow callbacks, with their classes where they are known."""
    sentences = []
    for run in runs_concerned(gpus, runs):
        # What took longer than all that was tagged as callbacks saved checkpoints meanwhile.
        in_callbacks_ns = run.phase_ns.get(TrainingPhase.CALLBACKS, 0)
        rest = {name: ns for name, ns in run.callback_ns.items() if ns <= in_callbacks_ns}
        if slowest := slowest_callbacks(replace(run, callback_ns=rest)):
            sentences.append(messages.SLOW_CALLBACKS.format(run=run.run, callbacks=slowest))
    return " ".join([*sentences, messages.CALLBACKS])


def slowest_callbacks(run: RunReport) -> str:
    """The callback classes that took most of a run's time; empty where none took much."""
    spent_ns = sum(
        run.phase_ns.get(phase, 0) for phase in (TrainingPhase.CALLBACKS, TrainingPhase.CHECKPOINT)
    )
    if spent_ns < _LIMITS.min_callbacks_share * run.wall_ns:
        return ""
    min_ns = max(1.0, _LIMITS.min_class_share * sum(run.callback_ns.values()))
    slowest = sorted(run.callback_ns.items(), key=lambda item: -item[1])
    return listed(
        [f"{name} {in_time(ns)}" for name, ns in slowest if ns >= min_ns], most=_MAX_CALLBACKS
    )


def unknown_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """What to do about idle time without a known cause."""
    runs = [run for run in runs if not run.uses_no_gpu]
    if runs and not any(run.gpu_uuids for run in runs):
        return messages.NO_GPU_OF_RUN.format(run=runs[0].run)
    if runs and _is_mostly_outside(gpus, runs):
        return messages.OUTSIDE_RUNS.format(gpus=gpus_named(gpu.label for gpu in gpus))
    concerned = runs_concerned(gpus, runs)
    if concerned and all(run.framework == "loop" for run in concerned):
        wanted = (TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP)
        if not all(any(run.phase_ns.get(phase) for run in concerned) for phase in wanted):
            return messages.TAG_WAIT_AND_STEP
    if not runs:
        return untagged_text(gpus)
    if _is_at_its_ends(gpus, concerned):
        return f"{messages.TAG_REST} {messages.REST_AT_ITS_ENDS}"
    return messages.TAG_REST


def _is_at_its_ends(gpus: Sequence[GpuReport], concerned: Sequence[RunReport]) -> bool:
    """Whether it lies before or after a trainer's work, which its tagger reports completely."""
    unknown_ns = idle_in([IdleCause.UNKNOWN], gpus)
    in_no_phase_ns = sum(run.phase_ns.get(TrainingPhase.OTHER, 0) for run in concerned)
    return 2 * in_no_phase_ns >= unknown_ns and all(run.framework != "loop" for run in concerned)


def _is_mostly_outside(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> bool:
    """Whether most of the unknown time may lie outside these runs."""
    unknown_ns = idle_in([IdleCause.UNKNOWN], gpus)
    outside_ns = sum(gpu.totals.in_use_ns for gpu in gpus)
    in_no_phase_ns = 0
    for run in runs_concerned(gpus, [run for run in runs if run.gpu_uuids]):
        outside_ns -= len(run.gpu_uuids) * run.wall_ns
        in_no_phase_ns += len(run.gpu_uuids) * run.phase_ns.get(TrainingPhase.OTHER, 0)
    return 2 * in_no_phase_ns < unknown_ns <= 2 * outside_ns


def between_epochs_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """How to lose less between two epochs, by what the loaders do there."""
    sentences = loader_sentences(runs_concerned(gpus, runs), epoch_settings)
    return " ".join([*sentences, messages.BETWEEN_EPOCHS])


def start_up_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """How to start faster; what a run compiled before its GPU first worked is start-up too."""
    used, waited_ns = {gpu.uuid for gpu in gpus}, idle_in([IdleCause.START_UP], gpus)
    compiled_ns = -idle_in([IdleCause.COMPILE], gpus) + sum(
        len(used & set(run.gpu_uuids)) * run.phase_ns.get(TrainingPhase.COMPILE, 0) for run in runs
    )
    if 2 * compiled_ns < waited_ns:
        return messages.START_UP
    return messages.START_UP_COMPILING.format(time=in_time(min(compiled_ns, waited_ns)))


def host_to_device_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """How to hide copies to the GPU, by the settings of the loaders."""
    sentences = loader_sentences(runs_concerned(gpus, runs), copy_settings)
    return " ".join([*sentences, messages.COPY])


def within_step_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """What to change in a step that leaves the device waiting, by the frameworks."""
    found = {_ways_of(run) for run in runs_concerned(gpus, runs) or runs}
    ways = found.pop() if len(found) == 1 else messages.ANY_WAYS
    row = messages.WITHIN_STEP if ways else messages.WITHIN_STEP_LARGER_BATCH
    return row.format(ways=ways)


def _ways_of(run: RunReport) -> str:
    if run.framework == "keras/tensorflow" and len(run.gpu_uuids) > 1:
        return ""  # XLA and several steps per call are for one device there
    return messages.WAYS_OF_FRAMEWORK.get(run.framework, messages.ANY_WAYS)


_TEXTS: Final[Mapping[IdleCause, str | _TextOf]] = {
    IdleCause.UNKNOWN: unknown_text,
    IdleCause.CHECKPOINT: messages.CHECKPOINT,
    IdleCause.VALIDATION: messages.VALIDATION,
    IdleCause.CALLBACKS: callbacks_text,
    IdleCause.HOST_TO_DEVICE: host_to_device_text,
    IdleCause.COMPILE: messages.COMPILE,
    IdleCause.BETWEEN_EPOCHS: between_epochs_text,
    IdleCause.START_UP: start_up_text,
}
ADVISED_CAUSES: Final = (
    IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP, IdleCause.IMBALANCE, *_TEXTS,
)  # fmt: skip


# -- GPUs without work ---------------------------------------------------------------


def unused_text(unused: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """What to do about GPUs that worked for a short time, and those that did not at all."""
    idle = [gpu for gpu in unused if not gpu.totals.in_use_ns and not gpu.is_hardly_observed]
    used = [gpu for gpu in unused if gpu not in idle]
    unsure = [gpu for gpu in idle if has_gaps(gpu)]
    idle = [gpu for gpu in idle if gpu not in unsure]
    sentences = [_text_on_short_use(used, runs)] if used else []
    if unsure:
        names = gpus_named(gpu.label for gpu in unsure)
        sentences += [messages.OTHER_ROWS_UNKNOWN.format(gpus=names), messages.LOG_A_SECOND]
    if not idle:
        return " ".join(sentences)
    waiting = [run for run in runs if run.alive and not run.gpu_uuids]
    at_steps = [run for run in runs if run.steps and (run in waiting or run.uses_no_gpu)]
    sentences += map(_text_on_steps_without_gpu, at_steps[:_MAX_RUNS])
    if coming := [run for run in waiting if not run.steps]:
        names = capital(listed([run_named(run) for run in coming], most=_MAX_RUNS))
        sentences.append(messages.RUNS_COMING.of(len(coming), runs=names))
    if len(idle) > len(waiting):
        row = messages.IDLE_BESIDE_RUNS if waiting else messages.IDLE
        sentences.append(row.of(len(idle), gpus=gpus_named(gpu.label for gpu in idle)))
    return " ".join(sentences)


def _text_on_steps_without_gpu(run: RunReport) -> str:
    name = capital(run_named(run))
    if run.uses_no_gpu:
        return messages.STEPS_ON_CPU.format(run=name, check=WHAT_TO_CHECK)
    phase = max(run.phase_ns, key=run.phase_ns.__getitem__, default=TrainingPhase.OTHER)
    if phase is TrainingPhase.OTHER or not run.wall_ns:
        return messages.STEPS_WITHOUT_GPU.format(run=name)
    share = in_percent(run.phase_ns[phase] / run.wall_ns)
    return messages.STEPS_ELSEWHERE.format(run=name, share=share, phase=phase.value)


def _text_on_short_use(used: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    names, enough = gpus_named(gpu.label for gpu in used), in_time(DEFAULT_SETTINGS.min_in_use_ns)
    of_runs = runs_on(used, runs)
    if of_runs and all(run.alive is False for run in of_runs):
        return messages.RUN_TOO_SHORT.format(enough=enough, gpus=names)
    longer = messages.WATCH_LONGER.format(enough=enough, gpus=names)
    if any(run.alive for run in of_runs) or any(gpu.is_hardly_observed for gpu in used):
        return longer
    return f"{longer} {messages.RELEASE_IF_DONE.of(len(used))}"


_MAX_HOLDERS: Final = 3
_MIN_SHOWN_BYTES: Final = (1 << 30) // 20
"""Less memory than that reads as 0.0 GiB."""


def held_advice(gpus: Sequence[GpuReport]) -> Advice | None:
    """The advice on GPUs that are held; ``None`` where there is none."""
    by_holder = holders(gpus)
    if not by_holder:
        return None
    held = [gpu for _, held_by_one in by_holder for gpu in held_by_one]
    return Advice(
        cause=HELD,
        lost_seconds=0.0,
        speedup_upper_bound=1.0,
        evidence=messages.HELD_EVIDENCE.of(
            len(held),
            gpus=gpus_named(gpu.label for gpu in held),
            time=in_time(DEFAULT_SETTINGS.held_after_ns),
        ),
        text=" ".join(_text_on_holder(held_by_one) for _, held_by_one in by_holder[:_MAX_HOLDERS]),
        gpus=tuple(gpu.label for gpu in held),
    )


def holders(gpus: Sequence[GpuReport]) -> list[tuple[str, list[GpuReport]]]:
    """The name of each process that holds GPUs, and these GPUs."""
    by_pid: dict[int, list[GpuReport]] = {}
    for gpu in gpus:
        if gpu.held is not None:
            by_pid.setdefault(gpu.held.pid, []).append(gpu)
    found = []
    for pid, held in by_pid.items():
        holder = held[0].held
        assert holder is not None
        facts = [] if holder.command is None else [label_text(holder.command)]
        facts += [] if holder.user is None else [_user_named(holder.user)]
        named = f" ({', '.join(facts)})" if facts else ""
        found.append((f"Process {pid}{named}", held))
    return found


def memory_of(gpus: Sequence[GpuReport]) -> str:
    """The memory that the holder of these GPUs has on them; empty: unknown, or next to nothing."""
    amounts = [gpu.held.memory_bytes for gpu in gpus if gpu.held is not None]
    known = [amount for amount in amounts if amount is not None]
    is_known = len(known) == len(amounts) and sum(known) >= _MIN_SHOWN_BYTES
    return in_gibibytes(sum(known)) if is_known else ""


def _user_named(user: str) -> str:
    return f"user {user}" if user.isdecimal() else label_text(user)


def _text_on_holder(gpus: Sequence[GpuReport]) -> str:
    holder, memory, names = gpus[0].held, memory_of(gpus), gpus_named(gpu.label for gpu in gpus)
    assert holder is not None
    ask = messages.HELD_FIND_OUT.format(pid=holder.pid)
    if holder.user is not None:
        ask = messages.HELD_ASK.format(user=_user_named(holder.user), pid=holder.pid)
    if memory:
        return f"{ask} {messages.HELD_FREES_MEMORY.format(memory=memory, gpus=names)}"
    is_alone = all(gpu.held is not None and gpu.held.process_count == 1 for gpu in gpus)
    return f"{ask} {messages.HELD_FREES.format(gpus=names)}" if is_alone else ask

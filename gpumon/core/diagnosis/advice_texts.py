"""The pieces of advice that depend on more than their cause: on tags and frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpumon.core.attribution.visible_devices import WHAT_TO_CHECK
from gpumon.core.diagnosis.input_texts import LossReason, step_reason_text
from gpumon.core.diagnosis.loader_texts import copy_wordings, epoch_wordings, loader_sentences
from gpumon.core.diagnosis.pause_texts import untagged_text
from gpumon.core.diagnosis.silence_texts import run_named
from gpumon.core.diagnosis.usable_rows import has_gaps, text_for_gaps
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import GpuReport, RunReport, idle_in, runs_concerned, runs_on
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import capital, gpus_named, in_percent, in_time, listed

_TAG_THE_PHASES: Final = (
    "tag the phases under `gpumon serve`: callbacks=[PhaseTagger()] in Keras, Lightning or "
    'a Hugging Face Trainer, timed(loader) and phase("train_step") in a loop of your own'
)
_MOST_CALLBACKS: Final = 3
_LIMITS: Final = DEFAULT_SETTINGS.advice

_TAG_OF_PHASE: Final = {
    TrainingPhase.INPUT_WAIT: "its wait for input with `for batch in timed(loader)`",
    TrainingPhase.TRAIN_STEP: 'its step with `with phase("train_step")`',
}
FIRST_BATCH_REMEDY: Final = (
    "make the shuffle buffer smaller, since it is filled first; read the first files from a local "
    "copy (cold shards, a cold cache); and list or index the data set once, not at each start."
)
FIRST_BATCH_TEXT: Final = f"The first batch came late, once a run: {FIRST_BATCH_REMEDY}"


def callbacks_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """What to do about slow callbacks, with the classes that took the time where they are known."""
    sentences = []
    for run in runs_concerned(gpus, runs):
        # What took longer than all that was tagged as callbacks saved checkpoints meanwhile.
        in_callbacks_ns = run.phase_ns.get(TrainingPhase.CALLBACKS, 0)
        rest = {name: ns for name, ns in run.callback_ns.items() if ns <= in_callbacks_ns}
        if slowest := slowest_callbacks(replace(run, callback_ns=rest)):
            sentences.append(f"In {run.run}: {slowest}.")
    sentences.append(
        "Take work out of the callbacks: log every N batches, write in a background thread, "
        "and read no tensor in a batch hook: each read makes the device wait."
    )
    return " ".join(sentences)


def slowest_callbacks(run: RunReport) -> str:
    """The classes of callback that took most of a run's time; empty where none took much."""
    spent_ns = sum(
        run.phase_ns.get(phase, 0) for phase in (TrainingPhase.CALLBACKS, TrainingPhase.CHECKPOINT)
    )
    if spent_ns < _LIMITS.min_callbacks_share * run.wall_ns:
        return ""
    least_ns = max(1.0, _LIMITS.min_class_share * sum(run.callback_ns.values()))
    slowest = sorted(run.callback_ns.items(), key=lambda item: -item[1])
    return listed(
        [f"{name} {in_time(ns)}" for name, ns in slowest if ns >= least_ns], most=_MOST_CALLBACKS
    )


def unknown_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """What to do about idle time that nobody has explained."""
    runs = [run for run in runs if not run.uses_no_gpu]
    if runs and not any(run.gpu_uuids for run in runs):
        return (
            f"The run {runs[0].run} tags its phases, but is joined to no GPU here: say which it "
            "trains on, with GPUMON_GPUS=0 or PhaseTagger(gpus=[0])."
        )
    if runs and _most_is_outside(gpus, runs):
        return (
            "Most of this is not the time of the runs in this report: tag whatever else "
            f"uses {gpus_named(gpu.label for gpu in gpus)}, too."
        )
    missing = _missing_tags(runs_concerned(gpus, runs))
    if missing:
        return f"Tag what the loop does in this time: {listed(missing)}."
    if runs:
        return (
            "Tag what the training does in this time, with `phase(...)` around it: "
            "the hooks saw a run, but none of its phases covers these seconds."
            f"{_at_its_ends(gpus, runs)}"
        )
    return untagged_text(gpus, _TAG_THE_PHASES)


def _at_its_ends(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """Where to look in the script of a trainer, whose tagger tells all that is inside of it."""
    concerned = runs_concerned(gpus, runs)
    unknown_ns = idle_in([IdleCause.UNKNOWN], gpus)
    in_no_phase_ns = sum(run.phase_ns.get(TrainingPhase.OTHER, 0) for run in concerned)
    if any(run.framework == "loop" for run in concerned) or 2 * in_no_phase_ns < unknown_ns:
        return ""
    return (
        " That is mostly before and after the training: in the script, or while the trainer lets "
        "go of its loader."
    )


def _missing_tags(runs: Sequence[RunReport]) -> list[str]:
    """The tags that a loop of one's own lacks, where all of these runs are such loops."""
    if not runs or any(run.framework != "loop" for run in runs):
        return []
    return [
        tag
        for phase, tag in _TAG_OF_PHASE.items()
        if not any(run.phase_ns.get(phase) for run in runs)
    ]


def _most_is_outside(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> bool:
    """Whether most of what is unknown was, for all that is known, before, after or beside them."""
    unknown_ns = idle_in([IdleCause.UNKNOWN], gpus)
    outside_ns = sum(gpu.totals.in_use_ns for gpu in gpus)
    in_no_phase_ns = 0
    for run in runs_concerned(gpus, [run for run in runs if run.gpu_uuids]):
        outside_ns -= len(run.gpu_uuids) * run.wall_ns
        in_no_phase_ns += len(run.gpu_uuids) * run.phase_ns.get(TrainingPhase.OTHER, 0)
    return 2 * in_no_phase_ns < unknown_ns <= 2 * outside_ns


def text_for_unused(unused: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """What to do about GPUs that worked for a moment, and those that did not at all."""
    idle = [gpu for gpu in unused if not gpu.totals.in_use_ns and not gpu.is_hardly_observed]
    other = [gpu for gpu in unused if gpu not in idle]
    unsure, idle = (
        [gpu for gpu in idle if has_gaps(gpu)],
        [gpu for gpu in idle if not has_gaps(gpu)],
    )
    sentences = [_text_for_too_short(other, runs)] if other else []
    sentences += [text_for_gaps(unsure)] if unsure else []
    waiting = [run for run in runs if run.alive and not run.gpu_uuids]
    at_steps = [run for run in runs if run.steps and (run in waiting or run.uses_no_gpu)]
    coming = [run for run in waiting if not run.steps]
    sentences += [_text_for_steps_without_work(run) for run in at_steps[:2] if idle]
    if idle and coming:
        names = listed([run_named(run) for run in coming], most=2)
        has = "has" if len(coming) == 1 else "have"
        sentences.append(f"{capital(names)} {has} used no GPU yet: that may come.")
    if len(idle) > len(waiting):
        names, them = _names_and_pronoun(idle)
        which = f"Of {names}, give" if waiting else f"Give {names}"
        what = "what nobody needs" if waiting else f"work, or give {them}"
        sentences.append(f"{which} {what} back.")
    return " ".join(sentences)


def _text_for_steps_without_work(run: RunReport) -> str:
    """What to do about a run that trains on next to nothing of a GPU."""
    if run.uses_no_gpu:
        return f"{capital(run_named(run))} computes its steps on the CPU: {WHAT_TO_CHECK}."
    phase = max(run.phase_ns, key=run.phase_ns.__getitem__, default=TrainingPhase.OTHER)
    text = f"{capital(run_named(run))} counts steps, but hardly uses a GPU"
    if phase is TrainingPhase.OTHER or not run.wall_ns:
        return f"{text}: tag what it does between its steps, with `phase(...)` around it."
    share = in_percent(run.phase_ns[phase] / run.wall_ns)
    return f"{text}: it spends {share} of its time in {phase.value}. Shorten that first."


def _text_for_too_short(worked: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    names, them = _names_and_pronoun(worked)
    enough = in_time(DEFAULT_SETTINGS.min_in_use_ns)
    trained = runs_on(worked, runs)
    if trained and all(run.alive is False for run in trained):
        return (
            f"The training is over: let the next one run for more than {enough} of work on "
            f"{names} (more steps or epochs), and ask again."
        )
    longer = (
        f"A verdict takes {enough} in use: watch {names} for longer, or ask about a longer time."
    )
    if any(run.alive for run in trained) or any(gpu.is_hardly_observed for gpu in worked):
        return longer
    return f"{longer} If there is nothing more to come, give {them} back."


def _names_and_pronoun(gpus: Sequence[GpuReport]) -> tuple[str, str]:
    return gpus_named(gpu.label for gpu in gpus), "it" if len(gpus) == 1 else "them"


def between_epochs_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """How to lose less between two epochs, by what the loaders do there."""
    sentences = loader_sentences(runs_concerned(gpus, runs), epoch_wordings)
    longer = "Make epochs longer: repeat the data set, and say how many steps are an epoch."
    return " ".join([*sentences, longer])


def start_up_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """How to start faster; what a run compiled before its GPU first worked is start-up too."""
    used, waited_ns = {gpu.uuid for gpu in gpus}, idle_in([IdleCause.START_UP], gpus)
    compiled_ns = -idle_in([IdleCause.COMPILE], gpus) + sum(
        len(used & set(run.gpu_uuids)) * run.phase_ns.get(TrainingPhase.COMPILE, 0) for run in runs
    )
    if 2 * compiled_ns < waited_ns:
        return (
            "Start faster: load the data set lazily, keep a prepared copy on a local disk, "
            "and build the pipeline while the model is being built."
        )
    return (
        f"Most of it was compiling ({in_time(min(compiled_ns, waited_ns))}): turn on the "
        "framework's compilation cache, so that the next run need not."
    )


def open_split_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """How the tags of a run can tell what the idle time of an asynchronous step is of."""
    concerned = runs_concerned(gpus, runs)
    waits = 'Put `with phase("device_sync")` around what waits for the GPU (`loss.item()`'
    if any(run.framework != "loop" for run in concerned):
        waits = 'In your own code, put `with phase("device_sync")` around what waits for the GPU ('
        waits += "`float(loss)`"
    return f"{waits}, a synchronize): from then on it is known when the GPU has done its work."


def host_to_device_text(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> str:
    """How to hide copies to the GPU, by what is known of the loaders."""
    sentences = loader_sentences(runs_concerned(gpus, runs), copy_wordings)
    pinned = "" if sentences else "with pinned memory, "
    general = (
        "Copy the next batch while the present one is computed: prefetch to the device, "
        f"{pinned}and send small types (uint8, float16) instead of float32."
    )
    return " ".join([*sentences, general])


def within_step_text(
    gpus: Sequence[GpuReport], runs: Sequence[RunReport], loss: LossReason | None
) -> str:
    """What to change in a step that leaves the device waiting, by what the frameworks take."""
    if loss is not None:
        return step_reason_text(loss)
    ways = {_way_of(run) for run in runs_concerned(gpus, runs) or runs}
    way = ways.pop() if len(ways) == 1 else _ANY_WAYS
    return (
        f"The device waits inside the step: use a larger batch{way and f', {way}'}, and read the "
        "loss less often. A kernel profiler shows which call synchronises."
    )


def _way_of(run: RunReport) -> str:
    if run.framework == "keras/tensorflow" and len(run.gpu_uuids) > 1:
        return ""  # XLA and several steps a call are for one device there
    return WAYS_OF_FRAMEWORK.get(run.framework, _ANY_WAYS)


_ANY_WAYS: Final = "compile the step, run several steps a call where the framework can"
WAYS_OF_FRAMEWORK: Final = {
    "keras/tensorflow": (
        "compile the step (jit_compile=True), run several steps a call (steps_per_execution)"
    ),
    "keras/jax": "run several steps a call (steps_per_execution)",
    "keras/torch": "compile the model (torch.compile)",
    "lightning": "compile the model (torch.compile)",
    "huggingface": "compile the model (torch_compile=True)",
}

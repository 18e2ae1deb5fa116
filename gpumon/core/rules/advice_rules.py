"""The advice's rules: which of the things that are true are worth a word on what to change."""

from __future__ import annotations

from typing import Final

from gpumon.core.advice import hides_much, is_first_batch_late, is_worth_a_change
from gpumon.core.job_balance import is_unequal
from gpumon.core.rhythm_texts import promises_speed
from gpumon.core.rules.rule import Rule, RuleKind

ADVICE_RULES: Final = (
    Rule(
        id="worth_a_change",
        kind=RuleKind.ADVICE,
        says="a cause of idle time gets an advice of its own",
        evidence="The time it cost a GPU that is neither healthy nor unused, of its time in use.",
        thresholds=("advice.min_share", "advice.min_start_up_share"),
        holds=is_worth_a_change,
    ),
    Rule(
        id="late_first_batch",
        kind=RuleKind.ADVICE,
        says="the wait for a training's very first batch gets an advice of its own",
        evidence="Time for which its GPU idled until then, as its tags tell, of its time in use.",
        thresholds=("advice.min_start_up_share",),
        holds=is_first_batch_late,
    ),
    Rule(
        id="hidden_input_wait",
        kind=RuleKind.ADVICE,
        says="a wait for input that costs nothing is told, so that nobody tunes it",
        evidence="Time for which the training waited for input while its GPU was busy.",
        thresholds=("advice.min_share",),
        holds=hides_much,
    ),
    Rule(
        id="promised_speed",
        kind=RuleKind.ADVICE,
        says="a speed-up is promised at most for ending pauses that nothing proves to be input's",
        evidence="How many pauses are suspected, and how long half of them are at most.",
        thresholds=("enough_pauses", "advice.promised_pause_ns"),
        measured_with=("blip_pause_samples", "blip_burst_samples"),
        holds=promises_speed,
    ),
    Rule(
        id="unequal_gpus",
        kind=RuleKind.ADVICE,
        says="other shares of each batch would level the GPUs of a job",
        evidence="How busy each of them was in the training's steps.",
        thresholds=("advice.level_within",),
        measured_with=("advice.min_step_ns",),
        holds=is_unequal,
    ),
)

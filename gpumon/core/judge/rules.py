"""Every rule there is, and what thresholds decide beside them. ``gpumon doctor --rules`` shows it.

A rule that is not here does not exist for people: whoever adds one adds it to
one of the four tables, and a test asks for its thresholds and its truth.

The advice's rules: which of the things that are true are worth a word on what to change.

The findings' rules: facts beside a verdict, which they never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.core.board.fill import is_held_down, is_under_filled
from gpumon.core.board.troubles import is_throttled
from gpumon.core.judge.advice import hides_much, is_first_batch_late, is_worth_a_change
from gpumon.core.judge.log_findings import LOG_RULES
from gpumon.core.judge.pause_texts import promises_speed
from gpumon.core.judge.rule import Rule, RuleKind
from gpumon.core.judge.verdict_rules import VERDICT_RULES
from gpumon.core.report.job_balance import is_unequal
from gpumon.core.time.starved_flag import is_starved_now

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


FINDING_RULES: Final = (
    Rule(
        id="starved_now",
        kind=RuleKind.FINDING,
        says="the GPU is starved at present (gpumon_gpu_starved is 1)",
        evidence="Starved and suspected time of the last minute in use.",
        thresholds=("flag_on_share", "flag_off_share"),
        measured_with=("flag_window_ns", "min_in_use_ns"),
        holds=is_starved_now,
    ),
    Rule(
        id="under_filled",
        kind=RuleKind.FINDING,
        says="the GPU is busy, and little of it works",
        evidence="The share of the multiprocessors that had work while it was busy; on boards "
        "that do not tell, the power it drew of its limit at full clock.",
        thresholds=(
            "fill.min_busy_ns",
            "fill.sm_active_below",
            "fill.memory_bound_from",
            "fill.power_below",
            "fill.held_share",
        ),
        measured_with=("fill.busy_above", "fill.full_clock_from", "fill.min_cover"),
        holds=is_under_filled,
    ),
    Rule(
        id="held_down",
        kind=RuleKind.FINDING,
        says="heat or power holds the GPU's clocks down",
        evidence="The share of its busy time in which the driver named such a reason.",
        thresholds=("fill.min_busy_ns", "fill.held_share"),
        measured_with=("fill.busy_above",),
        holds=is_held_down,
    ),
    Rule(
        id="throttled",
        kind=RuleKind.FINDING,
        says="heat, the board's protection or the power supply slows the GPU down: a trouble",
        evidence="The share of its busy time in which the driver named one such reason; the "
        "power limit is none.",
        thresholds=("trouble.min_busy_ns", "trouble.throttled_share"),
        measured_with=("fill.busy_above",),
        holds=is_throttled,
    ),
)


ALL_RULES: Final = (*VERDICT_RULES, *FINDING_RULES, *LOG_RULES, *ADVICE_RULES)

BESIDE_RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "high_share": "a verdict's severity is high",
        "min_coverage": "what no tag explains is told beside what is proved",
        "fill.held_told_from": "what held clocks down is told in passing",
        "fill.tensors_in_use_from": "the advice on an under-filled GPU leaves mixed precision out",
        "advice.min_callbacks_share": "the slowest callbacks are named",
        "advice.min_class_share": "a class is among them",
        "advice.min_reason_share": "the advice on input follows one reason",
        "advice.mostly_low_share": "unexplained time is not put down to small kernels",
        "steady_below": "pauses are said to come like a clock",
        "clockwork_from_ns": "pauses are said to come like a clock",
        "trouble.recent_ns": "an error of a GPU is told in the first line",
        "log.hole_periods": "time of a log counts as not observed",
        "log.period_told_from": "a note tells that a log's period changed",
    }
)
"""What is decided by a threshold that no rule reads, by its name: how a thing is worded."""

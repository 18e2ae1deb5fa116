"""The findings' rules: facts beside a verdict, which they never change."""

from __future__ import annotations

from typing import Final

from gpumon.core.fill.gpu_fill import is_held_down, is_under_filled
from gpumon.core.rules.rule import Rule, RuleKind
from gpumon.core.starved_flag import is_starved_now
from gpumon.core.troubles import is_throttled

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

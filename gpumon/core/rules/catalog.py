"""Every rule there is, and what thresholds decide beside them. ``gpumon doctor --rules`` shows it.

A rule that is not here does not exist for people: whoever adds one adds it to
one of the four tables, and a test asks for its thresholds and its truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.core.rules.advice_rules import ADVICE_RULES
from gpumon.core.rules.finding_rules import FINDING_RULES
from gpumon.core.rules.log_rules import LOG_RULES
from gpumon.core.rules.verdict_rules import VERDICT_RULES

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

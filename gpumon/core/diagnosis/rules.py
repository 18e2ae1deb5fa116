"""Every rule, and what other thresholds decide. ``gpumon doctor --rules`` prints both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.core.accounting.starved_flag import is_starved_now
from gpumon.core.device.sm_utilisation import are_clocks_reduced, is_under_filled
from gpumon.core.device.troubles import is_throttled
from gpumon.core.diagnosis.advice import hides_much, is_first_batch_late, is_worth_a_change
from gpumon.core.diagnosis.imbalance import (
    has_lower_clocks,
    has_more_work,
    is_shared,
    is_slower_board,
)
from gpumon.core.diagnosis.log_findings import all_pause_together, idles_beside_peer, is_memory_held
from gpumon.core.diagnosis.verdict_rules import VERDICT_RULES
from gpumon.core.report.job_balance import is_unequal
from gpumon.core.report.report import is_too_coarse
from gpumon.core.settings.rule import rule_of
from gpumon.core.waits.wait_rules import REASON_RULES

ALL_RULES: Final = (
    *VERDICT_RULES,
    rule_of(is_starved_now),
    rule_of(is_under_filled),
    rule_of(are_clocks_reduced),
    rule_of(is_throttled),
    rule_of(all_pause_together),
    rule_of(idles_beside_peer),
    rule_of(is_memory_held),
    rule_of(is_too_coarse),
    rule_of(is_worth_a_change),
    rule_of(is_first_batch_late),
    rule_of(hides_much),
    rule_of(is_unequal),
    *REASON_RULES,
    rule_of(has_lower_clocks),
    rule_of(is_shared),
    rule_of(has_more_work),
    rule_of(is_slower_board),
)

BESIDE_RULES: Final[Mapping[str, str]] = {
    "high_share": "a verdict's severity is high",
    "enough_pauses": "a loss in pauses that nothing explains may be high",
    "wide_range": "both bounds of what a cause cost are printed, and not one figure",
    "min_coverage": "what no tag explains is reported beside what is proved",
    "fill.held_told_from": "what held clocks down is mentioned",
    "fill.tensors_in_use_from": "the advice on low SM utilisation leaves mixed precision out",
    "advice.min_callbacks_share": "the slowest callbacks are named",
    "advice.min_class_share": "a class is among them",
    "advice.min_reason_share": "the advice on input follows one reason",
    "advice.mostly_low_share": "unexplained time is not attributed to small kernels",
    "host.look_ns": "a sample of the machine covers lost time",
    "host.queued_share": "cores are reported as short, not workers",
    "unlikely_below": "waits for input are among what pauses can be",
    "requests_from": "pauses look like those between requests",
    "every_n_steps_from_ns": "pauses look like checkpoints rather than rounds of other machines",
    "copies_from": "pauses look like checkpoints rather than rounds of other machines",
    "min_cycles": "pauses come like clockwork",
    "steady_below": "pauses come like clockwork",
    "clockwork_from_ns": "pauses come like clockwork",
    "now_window_ns": "the current verdict looks back so far",
    "now_every_ns": "the current verdict is renewed",
    "trouble.recent_ns": "an error of a GPU is in the first line",
    "imbalance.explained_from": "causes explain only a part of why a GPU is slow",
    "imbalance.compared_from_ns": "a note says that waits inside NCCL are not visible",
    "log.hole_periods": "time of a log counts as not observed",
    "log.usable_enough": "the first line gives the share of the rows it rests on",
    "log.usable_least": "a loss is only one of the usable rows, and never high",
    "log.ended_early_ns": "the first line reports that rows of a GPU end before those of others",
    "log.ended_early_share": "the same in a short log",
    "log.period_told_from": "a note reports that the period of a log changed",
}
"""What a threshold decides that no rule reads, by its name: how a report is worded."""

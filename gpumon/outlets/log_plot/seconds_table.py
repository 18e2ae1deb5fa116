"""The table of a page: where the seconds of each GPU went."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.core.advice import WORD_OF_CAUSE
from gpumon.core.figures import in_percent, in_seconds
from gpumon.core.label_text import label_text
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.report import GpuReport
from gpumon.outlets.report_headline import verdict_word


def seconds_table(gpus: Sequence[GpuReport]) -> tuple[list[str], list[list[str]]]:
    """The columns' heads, and a row for each GPU: busy and idle add up to observed.

    Causes that no GPU has are left out.
    """
    causes = [cause for cause in CAUSES if any(gpu.totals.idle_ns.get(cause) for gpu in gpus)]
    has_pending = any(gpu.totals.pending_ns for gpu in gpus)
    heads = ["GPU", "verdict", "observed", "busy", *(_cause_head(cause) for cause in causes)]
    heads += ["not decided yet"] if has_pending else []
    heads += ["starved or suspected", "pauses", "the longest"]
    return heads, [_row(gpu, causes, has_pending=has_pending) for gpu in gpus]


def _cause_head(cause: IdleCause) -> str:
    return f"idle, {WORD_OF_CAUSE[cause]}"


def _row(gpu: GpuReport, causes: Sequence[IdleCause], *, has_pending: bool) -> list[str]:
    totals, whole_ns = gpu.totals, gpu.totals.observed_ns
    name = f"{gpu.label}, {label_text(gpu.name, 64)}" if gpu.name else gpu.label
    parts = [totals.busy_ns, *(totals.idle_ns.get(cause, 0) for cause in causes)]
    parts += [totals.pending_ns] if has_pending else []
    return [
        name,
        verdict_word(gpu),
        in_seconds(whole_ns),
        *(_part(part_ns, whole_ns) for part_ns in parts),
        _part(totals.starved_ns + totals.suspected_ns, whole_ns),
        f"{totals.pauses.count:,}",
        in_seconds(totals.pauses.longest_ns) if totals.pauses.count else "-",
    ]


def _part(part_ns: int, whole_ns: int) -> str:
    if not part_ns or not whole_ns:
        return in_seconds(part_ns)
    return f"{in_seconds(part_ns)} ({in_percent(part_ns / whole_ns)})"

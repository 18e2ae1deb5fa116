"""A report for people: three lines that sum it up, then where every second went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final, NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import seconds
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.advice import hides_much
from gpumon.core.diagnosis.fill_advice import clocks_held_sentence, fill_figures
from gpumon.core.diagnosis.log_findings import is_few, samples_of
from gpumon.core.diagnosis.loss_range import is_wide
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, WORD_OF_REASON
from gpumon.core.diagnosis.rank_advice import wait_in_time, waits_much
from gpumon.core.diagnosis.seen_messages import seen_files
from gpumon.core.phase import CAUSES, OUT_OF_USE, IdleCause, InputWaitReason
from gpumon.core.report.report import GpuReport, Report, diagnosed
from gpumon.core.settings.detector import DEFAULT_FILL_SETTINGS, DEFAULT_SETTINGS
from gpumon.core.verdict import Severity
from gpumon.core.wording import (
    capital,
    in_percent,
    in_time,
    in_unit_of,
    is_next_to_nothing,
    label_text,
    parts_in_unit_of,
    time_range,
)
from gpumon.outlets.text.headline import has_instance, main_gpu, verdict_line, why_line
from gpumon.outlets.text.report_lines import (
    levels_lines,
    machine_line,
    next_line,
    observed_sentences,
    other_advice,
    other_findings,
    run_sentences,
    shown_notes,
)
from gpumon.outlets.text.statements import LOSS_LIMITS, word_in_table
from gpumon.outlets.text.style import WIDTH, TextStyle, bullets, wrapped
from gpumon.outlets.text.trouble_lines import (
    title_of_troubles,
    trouble_paragraphs,
    trouble_words,
    worst_of,
)

_BAR: Final = 21
_WHOLE_TABLES: Final = 4
"""With more GPUs than that, only the main one has a table."""
_COLOUR: Final = {Severity.NONE: "green", Severity.MODERATE: "yellow", Severity.HIGH: "red"}
_WIDEST_WORD: Final = 21
"""Columns that are left for the last column of the overview."""


def render_report(report: Report, style: TextStyle) -> str:
    """The complete report as text, 80 columns wide, with a line break at its end."""
    report = replace(report, runs=report.observed_runs)
    blocks = [_headline(report, style), "\n".join(wrapped(observed_sentences(report)))]
    machine = "\n".join(wrapped(machine_line(report)))
    troubles = bullets(f"{title_of_troubles(report)}:", trouble_paragraphs(report))
    blocks += filter(None, [machine, troubles])
    shown = report.gpus
    if len(diagnosed(report.gpus)) > _WHOLE_TABLES:
        blocks.append(_overview(report))
        main = main_gpu(report.at_present.gpus)
        shown = tuple(gpu for gpu in report.gpus if main is not None and gpu.label == main.label)
    blocks += [_gpu_block(gpu, report, style) for gpu in shown]
    advice = bullets("Other losses:", other_advice(report))
    found = bullets("Also noted:", other_findings(report, next_line(report)))
    runs = [line for run in run_sentences(report) for sentence in run for line in wrapped(sentence)]
    notes = [line for note in shown_notes(report) for line in wrapped(note, first="Note: ")]
    blocks += filter(None, ("\n".join(runs), advice, found, "\n".join(notes)))
    return style.plain("\n\n".join(blocks)) + "\n"


def _headline(report: Report, style: TextStyle) -> str:
    gpu = main_gpu(report.at_present.gpus)
    broken = worst_of(report)
    lost = gpu.verdict.severity if gpu is not None else Severity.NONE
    severity = max(broken, lost, key=attrgetter("gravity"))
    verdict, *more = _labelled("Verdict:", capital(verdict_line(report)))
    colour = _COLOUR[severity]
    return "\n".join(
        [
            *(style.painted(line, colour) for line in (verdict, *more)),
            *_labelled("Why:", capital(why_line(report))),
            *_labelled("Next:", capital(next_line(report))),
        ]
    )


def mig_sentence(gpu: GpuReport, report: Report) -> str:
    """About a MIG-partitioned GPU, or an instance without utilisation data; else empty."""
    if gpu.is_partitioned:
        if has_instance(gpu, report.gpus):
            return "MIG is on: its instances are below."
        if report.sampling is not None:
            return f"MIG is on. {messages.WHY_MIG_IN_LOG}"
        return "MIG is on, and no instance has been created: nothing can run on it."
    if gpu.has_no_utilisation:
        return f"no utilisation data. {messages.WHY_NO_DATA}"
    return ""


def _overview(report: Report) -> str:
    lines = ["GPU      observed    busy       lost starved or suspected  verdict"]
    longest_ns = max(gpu.totals.observed_ns for gpu in report.gpus)
    for gpu in report.gpus:
        totals, verdict = gpu.totals, gpu.verdict
        unknown = mig_sentence(gpu, report)
        if unknown and not totals.observed_ns:
            broken = trouble_words(gpu)
            lines += wrapped(f"{broken}: {unknown}" if broken else unknown, first=f"{gpu.label:<8}")
            continue
        busy = totals.busy_ns / totals.observed_ns if totals.observed_ns else None
        lines.append(
            f"{gpu.label:<4}{in_unit_of(longest_ns, totals.observed_ns):>13}{in_percent(busy):>8}"
            f" {_loss(verdict.lost_ratio):>10} {_loss(verdict.starved_ratio):>20}"
            f"  {word_in_table(gpu, _WIDEST_WORD)}"
        )
    lines.append("busy: share of the time observed; lost and starved: of the time in use")
    return "\n".join(lines)


def _gpu_block(gpu: GpuReport, report: Report, style: TextStyle) -> str:
    if is_few(gpu):
        return "\n".join(wrapped(f"{_name(gpu)}: {samples_of(gpu)}."))
    sentence = mig_sentence(gpu, report)
    if not sentence:
        return "\n".join([_table(gpu, style), *levels_lines(gpu, report.sampling)])
    lines = wrapped(f"{_name(gpu)}: {sentence}")
    return "\n".join([*lines, _table(gpu, style)] if gpu.totals.observed_ns else lines)


def _name(gpu: GpuReport) -> str:
    broken = trouble_words(gpu)
    name = f"GPU {gpu.label}" + (f", {label_text(gpu.name, 40)}" if gpu.name else "")
    return f"{name} ({broken})" if broken else name


def _table(gpu: GpuReport, style: TextStyle) -> str:
    totals = gpu.totals
    held = "" if gpu.held is None else f", held by process {gpu.held.pid}"
    lines = [style.painted(f"{_name(gpu)}: in use for {in_time(totals.in_use_ns)}{held}", "bold")]
    # The headline's shares are of the time in use.
    lines.append(f"  of the {in_time(totals.observed_ns)} observed:")
    lines.append(_row("busy", totals.busy_ns, totals.observed_ns, style))
    for cause, idle_ns in _causes(gpu):
        if is_next_to_nothing(idle_ns, totals.observed_ns):
            continue
        row = _row(f"idle, {WORD_OF_CAUSE[cause]}", idle_ns, totals.observed_ns, style)
        if is_wide(totals, cause):
            low_ns, high_ns = totals.bounds_ns(cause)
            row = f"{row.rstrip()}  {time_range(low_ns, high_ns)}"
        if cause is gpu.verdict.main_cause and gpu.verdict.name.is_of_a_loss:
            row = style.painted(f"{row.rstrip():<{WIDTH - 3}} {style.arrow}", "bold")
        lines.append(row)
        for split in _splits(cause, totals):
            lines += _details(split, idle_ns, totals.observed_ns)
    if not is_next_to_nothing(totals.pending_ns, totals.observed_ns):
        lines.append(_row("idle, pending", totals.pending_ns, totals.observed_ns, style))
    lines += _sum_rows(gpu)
    if waits_much(gpu):
        lines.append(f"  of the busy time, waiting for another rank: {wait_in_time(totals)}")
    if not is_next_to_nothing(totals.hanging_ns, totals.observed_ns):
        hung = in_unit_of(totals.observed_ns, totals.hanging_ns)
        lines.append(f"    {'while a run hung':<28}{hung:>13}")
    lines += _fill(gpu)
    if hides_much(totals) and not is_wide(totals, IdleCause.INPUT_WAIT):
        lines.append(_hidden(gpu))
    lines += [f"  seen in {path}" for path in seen_files(gpu.stacks)]
    return "\n".join(line.rstrip() for line in lines)


def _fill(gpu: GpuReport) -> list[str]:
    fill = gpu.fill
    if fill is None:
        return []
    figures = fill_figures(fill) if fill.evidence is not None else ""
    text = f"While it was busy: {figures}." if figures else ""
    least_ns = DEFAULT_FILL_SETTINGS.min_busy_ns
    if text and fill.observed_ns < least_ns:
        text += f" Under {seconds(least_ns):.0f} s of busy time is too little to assess it."
    return wrapped(text, first="  ") + wrapped(clocks_held_sentence(fill), first="  ")


def _causes(gpu: GpuReport) -> list[tuple[IdleCause, int]]:
    rows = ((cause, gpu.totals.idle_ns.get(cause, 0)) for cause in CAUSES)
    return sorted(
        (row for row in rows if row[1] > 0), key=lambda row: (row[0] in OUT_OF_USE, -row[1])
    )


def _row(title: str, amount_ns: int, whole_ns: int, style: TextStyle) -> str:
    ratio = amount_ns / whole_ns if whole_ns else 0.0
    return f"{_amount(title, amount_ns, whole_ns)}  {style.bar(ratio, _BAR)}"


def _amount(title: str, amount_ns: int, whole_ns: int) -> str:
    percent = 100 * amount_ns / whole_ns if whole_ns else 0.0
    return f"  {title:<30.30}{in_unit_of(whole_ns, amount_ns):>13}{percent:>7.1f} %"


class _Split(NamedTuple):
    """Parts of the time of one cause, and what is left of it.

    Attributes:
        parts: What each is called, and how long it is, nanoseconds.
        rest: What the rest is called.
        is_rest_shown: Whether the rest is shown where there are no parts.
    """

    parts: Sequence[tuple[str, int]]
    rest: str
    is_rest_shown: bool = False


def _splits(cause: IdleCause, totals: GpuTotals) -> Iterator[_Split]:
    if cause is IdleCause.UNKNOWN:
        suspected = [("of it suspected starvation", totals.suspected_ns)]
        yield _Split(suspected, "of it not suspected")
    if cause is IdleCause.INPUT_WAIT:
        parts = [
            ("when: for the first batch", totals.first_input_wait_ns),
            ("when: in validation", totals.validation_input_wait_ns),
            ("when: at the start of epochs", totals.epoch_input_wait_ns),
        ]
        yield _Split(parts, "when: at other times")
        yield _by_reason(totals.input_wait_by_reason_ns, is_rest_shown=True)
    if cause is IdleCause.WITHIN_STEP:  # only its Python is sampled
        yield _by_reason(totals.within_step_by_reason_ns)


def _by_reason(by_reason: Mapping[str, int], *, is_rest_shown: bool = False) -> _Split:
    unknown = InputWaitReason.UNKNOWN.value
    known = sorted(
        ((name, ns) for name, ns in by_reason.items() if name != unknown), key=lambda pair: -pair[1]
    )
    parts = [(f"due to {WORD_OF_REASON.get(name, name)}", ns) for name, ns in known]
    rest = f"due to {WORD_OF_REASON[unknown]}"
    return _Split(parts, rest, is_rest_shown=is_rest_shown and bool(by_reason))


def _details(split: _Split, whole_ns: int, like_ns: int) -> list[str]:
    """Lines on the parts of an amount, which add up to it as it is printed."""
    left_ns, parts_ns = whole_ns, []
    for _, part_ns in split.parts:
        parts_ns.append(min(left_ns, part_ns))
        left_ns -= parts_ns[-1]
    cells = parts_in_unit_of(like_ns, [*parts_ns, left_ns])
    if not split.is_rest_shown and not any(cells[:-1]):
        return []
    titles = [*(title for title, _ in split.parts), split.rest]
    return [
        f"    {title:<28.28}{cell:>13}"
        for title, cell in zip(titles, cells, strict=True)
        if cell is not None
    ]


def _sum_rows(gpu: GpuReport) -> list[str]:
    totals, ratio = gpu.totals, gpu.verdict.coverage_ratio
    total_ns = totals.busy_ns + totals.idle_total_ns + totals.pending_ns
    row = _amount("sum = observed", total_ns, totals.observed_ns)
    if ratio is None:
        return [row]
    coverage = in_percent(ratio, DEFAULT_SETTINGS.min_coverage)
    return [row, f"  coverage of the time in use: {coverage}"]


def _hidden(gpu: GpuReport) -> str:
    totals = gpu.totals
    exposed_ns = totals.idle_ns.get(IdleCause.INPUT_WAIT, 0)
    text = (
        f"The run also waited {in_time(totals.hidden_input_wait_ns)} for input while "
        f"the GPU was busy: overlapped with GPU work, at no cost. Not overlapped: "
        f"{in_time(exposed_ns)}."
    )
    return "\n".join(wrapped(text, first="  "))


def _labelled(label: str, text: str) -> list[str]:
    return wrapped(text, first=f"{label:<9}")


def _loss(ratio: float | None) -> str:
    return "-" if ratio is None else in_percent(ratio, *LOSS_LIMITS)

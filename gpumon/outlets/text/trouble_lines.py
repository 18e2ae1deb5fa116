"""GPUs in trouble: the sentences before the verdict on their time, and a block of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.clock import seconds
from gpumon.core.device.troubles import Trouble, TroubleKind, worst
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.verdict import Severity
from gpumon.core.wording import capital, counted, gpus_named, in_time, label_text, listed, plainly

_MAX_SENTENCES: Final = 3
"""GPUs, or groups in the same trouble, that are named in the first lines."""
_MAX_PARAGRAPHS: Final = 12
_SHORT_UUID: Final = 13
"""``GPU-8f1c2a3b`` and an ellipsis."""


class _Group(NamedTuple):
    gpus: list[GpuReport]
    troubles: list[Trouble]


def has_trouble(gpu: GpuReport) -> bool:
    """Whether it has one that belongs in the first line."""
    return worst(gpu.troubles) is not Severity.NONE


def worst_of(report: Report) -> Severity:
    """The worst severity in a report, also of a GPU that a log has no row of."""
    if report.lost_elsewhere:
        return Severity.HIGH
    return worst([trouble for gpu in report.gpus for trouble in gpu.troubles])


def trouble_title(report: Report) -> str:
    """The beginning of a verdict on GPUs in trouble."""
    if report.lost_elsewhere or any(gpu.is_lost for gpu in report.gpus):
        return "GPU lost"
    kinds = {
        trouble.kind
        for gpu in report.gpus
        for trouble in gpu.troubles
        if trouble.severity is not Severity.NONE
    }
    return "rows end early" if kinds == {TroubleKind.ENDED} else "GPU in trouble"


def title_of_troubles(report: Report) -> str:
    """The title of the list of all troubles."""
    is_past = worst_of(report) is Severity.NONE
    return "Earlier trouble (no action needed if it does not recur)" if is_past else "In trouble"


def trouble_sentences(report: Report, severity: Severity) -> str:
    """What is wrong with the GPUs whose worst trouble is that grave; empty where there is none."""
    groups = _groups(report, severity)
    sentences = [_sentences(group, report) for group in groups[:_MAX_SENTENCES]]
    more = sum(len(group.gpus) for group in groups[_MAX_SENTENCES:])
    if more:
        sentences.append(f"{counted(more, 'more GPU is', 'more GPUs are')} in trouble.")
    if severity is Severity.HIGH:
        sentences += [
            f"{capital(error.partition(': ')[0])}." for error in report.lost_elsewhere[:1]
        ]
    return " ".join(sentences)


def trouble_evidence(report: Report) -> str:
    """The evidence of grave troubles, a sentence for each GPU; empty where there is none."""
    sentences = []
    for group in _groups(report, Severity.HIGH)[:_MAX_SENTENCES]:
        clauses = "; ".join(filter(None, (_evidence(each, report) for each in group.troubles)))
        if clauses:
            sentences.append(f"{_names(group.gpus, report)}: {clauses}.")
    return " ".join(sentences)


def first_remedy(report: Report, severity: Severity) -> str:
    """What to do about the first trouble that is that grave; empty where there is none."""
    first = next(iter(_groups(report, severity)), None)
    if first is None and severity is Severity.HIGH and report.lost_elsewhere:
        gone, _, todo = report.lost_elsewhere[0].partition(": ")
        return f"{gone.partition(',')[0]}: {todo}."
    return "" if first is None else f"{_names(first.gpus, report)}: {first.troubles[0].advice}."


def source_sentence(report: Report) -> str:
    """Why no GPU at all can be read, where the source gives the reason; else empty."""
    if report.source_error is None:
        return ""
    return f"no GPU can be read: {report.source_error.partition(': ')[0].rstrip('.')}."


def remedy_of_the_source(report: Report) -> str:
    """What to do about it; empty where nothing is wrong, or the source names no remedy."""
    todo = (report.source_error or "").partition(": ")[2].rstrip(".")
    return f"{todo}." if todo else ""


def trouble_words(gpu: GpuReport) -> str:
    """Its troubles by name: ``lost``, ``XID 79, throttled``."""
    if gpu.is_lost:
        return TroubleKind.LOST.value
    words = [
        trouble.short_name for trouble in gpu.troubles if trouble.severity is not Severity.NONE
    ]
    return ", ".join(words[:2])


def trouble_paragraphs(report: Report) -> list[str]:
    """All troubles, also those long past, each with what to do."""
    alike: dict[tuple[str, int | None], _Group] = {}
    for gpu in report.gpus:
        for trouble in gpu.troubles:
            group = alike.setdefault((trouble.text, trouble.times), _Group([], [trouble]))
            group.gpus.append(gpu)
    in_order = sorted(alike.values(), key=lambda group: -group.troubles[0].severity.gravity)
    paragraphs = [_paragraph(group, report) for group in in_order]
    elsewhere = [error.partition(": ") for error in report.lost_elsewhere]
    paragraphs += [f"{capital(gone)}. What to do: {todo}." for gone, _, todo in elsewhere]
    more = len(paragraphs) - _MAX_PARAGRAPHS
    if more > 0:
        paragraphs[_MAX_PARAGRAPHS:] = [f"{more} more: --json has all of them."]
    return paragraphs


def _groups(report: Report, severity: Severity) -> list[_Group]:
    """GPUs whose worst troubles have that severity, grouped by these."""
    alike: dict[tuple[str, ...], _Group] = {}
    for gpu in report.gpus:
        troubles = [trouble for trouble in gpu.troubles if trouble.severity is severity]
        if troubles and worst(gpu.troubles) is severity:
            key = tuple(trouble.text for trouble in troubles)
            alike.setdefault(key, _Group([], troubles)).gpus.append(gpu)
    # A lost GPU first: no other loss is as large.
    return sorted(alike.values(), key=lambda group: group.troubles[0].kind is not TroubleKind.LOST)


def _sentences(group: _Group, report: Report) -> str:
    first, *others = group.troubles
    text = f"{_names(group.gpus, report)} {first.text}{_where(first, report)}."
    if not others:
        return text
    who = "It" if len(group.gpus) == 1 else "They"
    texts = [f"{trouble.text}{_where(trouble, report)}" for trouble in others]
    return f"{text} {who} {listed(texts, most=2)}."


def _where(trouble: Trouble, report: Report) -> str:
    """Where in a log it is, and when it was; empty where it is in no log."""
    if trouble.line is None:
        return ""
    if trouble.kind is not TroubleKind.LOST:
        return f" (first in line {trouble.line:,}, {_time(trouble.began_ns, report)})"
    until = _time(trouble.ended_ns, report)
    if trouble.times is not None and until:
        since = _time(trouble.began_ns, report) or _time(trouble.last_ns, report)
        between = f", between {since} and {until}" if since else f", up to {until}"
        return f" (first in line {trouble.line:,}{between})"
    began, last = _time(trouble.began_ns, report), _time(trouble.last_ns, report)
    when = "before its first row"
    if began:
        when = f"from {began} on" if trouble.ended_ns is None else f"from {began}"
    elif last:
        when = f"after the last row before it, {last}"
    until = f", read again {until}" if until else ""
    before = (trouble.times or 1) - 1
    again = f"; {counted(before, 'time', 'times')} before that" if before else ""
    return f" (line {trouble.line:,}, {when}{until}{again})"


def _evidence(trouble: Trouble, report: Report) -> str:
    if trouble.is_of_a_lost_gpu:
        return _at("last read", trouble, report)
    if trouble.kind is TroubleKind.LOST:
        return ""
    return f"{trouble.short_name} {_how_much(trouble, report)}"


def _paragraph(group: _Group, report: Report) -> str:
    (trouble,) = group.troubles
    more = f", {_how_much(trouble, report)}"
    if trouble.kind is TroubleKind.LOST:
        more = _at(", last read", trouble, report) if len(group.gpus) == 1 else ""
        more = _where(trouble, report) or more
    elif trouble.times is None and trouble.duration_ns is None:
        more = _where(trouble, report)
    return f"{_names(group.gpus, report)} {trouble.text}{more}. What to do: {trouble.advice}."


def _how_much(trouble: Trouble, report: Report) -> str:
    if trouble.duration_ns is not None:
        return f"for {in_time(trouble.duration_ns)}"
    often = "once" if trouble.times in (1, None) else f"{trouble.times:,} times"
    return f"{often}{_at('' if trouble.times == 1 else ', last', trouble, report)}"


def _at(words: str, trouble: Trouble, report: Report) -> str:
    """When it was, by the wall clock; empty where that is not known."""
    if trouble.last_ns is None or report.started_at is None:
        return ""
    return f"{words} at {_time(trouble.last_ns, report)}"


def _time(at_ns: int | None, report: Report) -> str:
    """A time by the wall clock, or since the start of the report; empty for ``None``."""
    if at_ns is None:
        return ""
    time = report.wall_time(at_ns)
    if time is None:
        return f"{plainly(seconds(at_ns - report.origin_ns))} s after the start"
    zone = "" if time.utcoffset() is None else f" {time:%Z}"
    return f"{time:%Y-%m-%d %H:%M:%S}{zone}"


def _names(gpus: Sequence[GpuReport], report: Report) -> str:
    return gpus_named([_name(gpu, report) for gpu in gpus])


def _name(gpu: GpuReport, report: Report) -> str:
    """Its number; where another GPU has that now, with its UUID."""
    is_shared = sum(other.label == gpu.label for other in report.gpus) > 1
    known_as = f" ({label_text(gpu.uuid, _SHORT_UUID)})" if is_shared and gpu.uuid else ""
    return f"{gpu.label}{known_as}"

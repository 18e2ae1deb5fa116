"""What ``gpumon why`` prints: where a process is while its GPU idles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis.input_advice import reason_seen
from gpumon.core.diagnosis.messages import HELD_UP, WORD_OF_CAUSE
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Advice
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.stacks.evidence import CauseShare, PlaceCount, StackFinding, UserFunction
from gpumon.core.stacks.frame_text import call_text, function_text, shown_path, where_text
from gpumon.core.stacks.place import STOPPED
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.stacks.workers import WorkerSummary
from gpumon.core.waits.reasons import WaitReason
from gpumon.core.wording import counted, in_percent, in_time, label_text, part_of
from gpumon.outlets.text.report_lines import gain_sentence
from gpumon.outlets.text.statements import joined
from gpumon.outlets.text.style import wrapped
from gpumon.pipeline.stack_watch import Ending, WatchedTime

_MOST_PLACES: Final = 3
_TAG: Final = "tag the training run, which shows each cause: docs/hooks.md."
_FUNCTION: Final = (
    "make {function} faster or rarer, or let it work while the GPU computes: in a thread or "
    "process, ahead of the step. A tag shows what it costs: docs/hooks.md."
)
_NO_PYTHON: Final = "the program runs no Python: `perf top -p` or `gdb -p` show its own functions."
_MOST_UNOBSERVED_NS: Final = 3 * NS_PER_S
"""The newest samples are always missing."""
_LEAST_SHARE_OF_PLACE: Final = 0.1


class Why(NamedTuple):
    """Everything that the text says.

    Attributes:
        process: Name of the script or program.
        line_of: The source line of a frame; empty: unknown.
        held_up_by: What held its input up; ``None``: unknown.
        is_python: Whether its Python stacks were read, not only what the kernel shows.
        longer: The command that watches for longer.
    """

    watched: WatchedTime
    process: str
    advice: Advice | None
    line_of: Callable[[StackFrame], str]
    held_up_by: WaitReason | None = None
    longer: str = "gpumon why --for 120"
    is_python: bool = True


def why_text(why: Why) -> str:
    """The result, 80 columns wide, with a line break at its end."""
    lines = [line for paragraph in _paragraphs(why) for line in paragraph]
    return "\n".join(lines) + "\n"


def _paragraphs(why: Why) -> list[list[str]]:
    watched, finding = why.watched, why.watched.finding
    first = [wrapped(joined([_ending(why), _idle_sentence(watched)]))]
    if not watched.observed_ns or watched.idle_ratio < DEFAULT_SETTINGS.lost_share:
        return first
    if finding.is_enough:
        opening = _opening(why)
        workers = [] if finding.workers is None else [wrapped(workers_sentence(finding.workers))]
        return [opening, *_places(finding.places, why), *workers, *_so(why), *_next(why)]
    if watched.is_short and finding.random_samples:
        return [*first, *_consistent(why)]
    return [*first, *_too_few(why)]


def _ending(why: Why) -> str:
    if why.watched.ending is Ending.PROCESS_ENDED:
        return f"{label_text(why.process)} ended while it was watched."
    return ""


def _idle_sentence(watched: WatchedTime) -> str:
    name = f"GPU {watched.device.label}" if watched.device is not None else "The GPU"
    if not watched.observed_ns:
        because = f": {watched.trouble}" if watched.trouble else ""
        return f"{name} reported no utilisation while it was watched{because}."
    trouble = "" if watched.trouble is None else f" At the end: {watched.trouble.rstrip('.')}."
    if watched.passed_ns - watched.observed_ns > _MOST_UNOBSERVED_NS:
        covered = part_of(watched.observed_ns, watched.passed_ns)
        trouble = f" The driver's samples cover {covered} only.{trouble}"
    if watched.idle_ratio < DEFAULT_SETTINGS.lost_share:
        busy = part_of(watched.busy_ns, watched.observed_ns)
        return f"{name} was busy for {busy}: there is nothing to find.{trouble}"
    if not watched.busy_ns:
        return f"{name} was idle for all of {in_time(watched.observed_ns)}.{trouble}"
    idle = part_of(watched.idle_ns, watched.observed_ns)
    if watched.finding.is_enough and not watched.sees_most:
        idle += f", {in_time(watched.seen_idle_ns)} of it in pauses that are long enough to see"
    return f"{name} was idle for {idle}.{trouble}"


def _opening(why: Why) -> list[str]:
    finding = why.watched.finding
    samples = counted(finding.idle_samples, "sample", "samples")
    thread = "the training thread" if why.is_python else "its main thread"
    return wrapped(
        f"{joined([_ending(why), _idle_sentence(why.watched)])} In {finding.places[0].samples} of "
        f"{samples} taken then, {thread} was in"
    )


def _places(places: tuple[PlaceCount, ...], why: Why) -> list[list[str]]:
    """The most frequent place, and others that are not rare."""
    if not places:
        return []
    total = sum(place.samples for place in places)
    shown = [_place_lines(places[0], why)]
    for place in places[1:_MOST_PLACES]:
        if place.samples >= _LEAST_SHARE_OF_PLACE * total:
            shown += [wrapped(f"and in {place.samples} in"), _place_lines(place, why)]
    return shown


def _place_lines(place: PlaceCount, why: Why) -> list[str]:
    """The library's call, and the user's line that calls it; or that line alone."""
    lines, caller = [], place.caller
    if place.what:
        is_other = place.frame is not None and place.frame != caller
        path = shown_path(place.frame.path) if place.frame is not None and is_other else ""
        lines += wrapped("   ".join(filter(None, (label_text(place.what), path))), first="  ")
    if caller is not None:
        called = f"called from {where_text(caller)}" if lines else call_text(caller)
        words = "   ".join(filter(None, (called, why.line_of(caller))))
        lines += wrapped(words, first="    " if lines else "  ")
    return lines or ["  code that could not be read"]


def workers_sentence(workers: WorkerSummary) -> str:
    """What the processes that work for it do, in a sentence."""
    count = counted(workers.number, "worker", "workers")
    if not workers.at_work:
        return f"{count}: waiting for work."
    doing = f"{workers.at_work} at work"
    where = [] if workers.user_call is None else [where_text(workers.user_call)]
    if workers.call is not None:
        name = label_text(workers.call.function)
        doing += f", mostly in {' '.join([name, *(f'({one})' for one in where)])}"
    waiting = workers.number - workers.at_work
    return f"{count}: {doing}" + (f"; {waiting} waiting." if waiting else ".")


def _so(why: Why) -> list[list[str]]:
    finding = why.watched.finding
    main, function = finding.main, finding.function
    assert main is not None  # there were enough samples
    if _is_stopped(finding):
        return [wrapped("So: nothing that the script does: it is stopped.")]
    if main.cause is IdleCause.UNKNOWN:
        return [wrapped(f"So: {_unknown(why, function, main)}")]
    seen = "" if why.held_up_by is None else reason_seen(why.held_up_by)
    sentences = [f"So: {WORD_OF_CAUSE[main.cause]} ({_interval(main, why.watched)})."]
    sentences.append(HELD_UP.format(seen=seen) if seen else "")
    if function is not None:
        sentences.append(f"It is in {function_text(function)}.")
    elif finding.inside is not None and finding.workers is None:
        sentences.append(f"It works on {call_text(finding.inside)}.")
    return [wrapped(joined(sentences))]


def _unknown(why: Why, function: UserFunction | None, main: CauseShare) -> str:
    if not why.is_python:
        return f"cause unknown: {label_text(why.process)} runs no Python."
    if function is None:
        share = _interval(main, why.watched)
        return f"cause unknown ({share}): none of its own functions stands out."
    share = f"{function.idle_samples} of {why.watched.finding.idle_samples} samples"
    return (
        f"cause unknown; the GPU waits while {label_text(why.process)} is in "
        f"{function_text(function)} ({share}{_while_busy(why.watched.finding, function)})."
    )


def _while_busy(finding: StackFinding, function: UserFunction) -> str:
    if not function.is_compared:
        return ""
    return f", and {function.busy_samples} of {finding.busy_samples} while it worked"


def _interval(share: CauseShare, watched: WatchedTime) -> str:
    what = "the idle time" if watched.sees_most else f"those {in_time(watched.seen_idle_ns)}"
    if share.samples == watched.finding.idle_samples:
        return f"all samples, so at least {in_percent(share.low)} of {what}"
    return f"{in_percent(share.ratio)} of {what}, {_between(share)}"


def _between(share: CauseShare) -> str:
    low, high = (in_percent(end).removesuffix(" %") for end in (share.low, share.high))
    return f"between {low} and {high} %"


def _is_stopped(finding: StackFinding) -> bool:
    most = finding.places[0]
    return most.what == STOPPED and 2 * most.samples > finding.idle_samples


def _next(why: Why) -> list[list[str]]:
    if _is_stopped(why.watched.finding):
        go_on = f"`kill -CONT {why.watched.pid}`, `fg` in its shell, or the debugger"
        return [wrapped(f"Next: let it go on: {go_on}.")]
    if why.advice is not None:
        return [wrapped(f"Next: {joined([why.advice.text, gain_sentence(why.advice)])}")]
    if not why.is_python:
        return [wrapped(f"Next: {_NO_PYTHON}")]
    function = why.watched.finding.function
    if function is None:
        return [wrapped(f"Next: {_TAG}")]
    row = _FUNCTION.format(function=label_text(function.frame.function))
    return [wrapped(f"Next: {row}")]


def _consistent(why: Why) -> list[list[str]]:
    """Pauses that no window of the driver shows alone: two shares, and no proof."""
    watched, finding = why.watched, why.watched.finding
    opening = wrapped(
        f"Its pauses are shorter than the driver's windows ({in_time(watched.window_ns)}), so "
        f"{counted(finding.random_samples, 'sample was', 'samples were')} taken at random times."
    )
    share = next((one for one in finding.at_random if one.cause is not IdleCause.UNKNOWN), None)
    places = tuple(
        one for one in finding.random_places if share is None or one.cause is share.cause
    )
    thread = "the training thread" if why.is_python else "its main thread"
    was = wrapped(f"In {places[0].samples} of {finding.random_samples}, {thread} was in")
    seen = [opening, was, *_places(places, why)]
    if share is None:
        return [*seen, wrapped("So: cause unknown."), wrapped(f"Next: {_TAG}")]
    fits = share.low <= watched.idle_ratio <= share.high
    so = (
        f"So: {WORD_OF_CAUSE[share.cause]} in {in_percent(share.ratio)} of the time "
        f"({_between(share)}), and the GPU idle for {in_percent(watched.idle_ratio)} of it: "
    )
    so += (
        "consistent with each other, so suspected, but not seen."
        if fits
        else "too different for this alone to be the cause."
    )
    return [*seen, wrapped(so), wrapped(f"Next: {_TAG}")]


def _too_few(why: Why) -> list[list[str]]:
    finding = why.watched.finding
    again = wrapped(f"Next: watch for longer: `{why.longer}`.")
    if why.watched.ending is Ending.PROCESS_ENDED:
        again = wrapped("Next: watch a run that lasts longer.")
    if finding.failed_samples and not (finding.idle_samples or finding.busy_samples):
        failed = counted(finding.failed_samples, "stack sample", "stack samples")
        return [wrapped(f"{failed} could not be read: {finding.failure}."), again]
    few = counted(finding.idle_samples, "stack sample was", "stack samples were")
    text = f"Only {few} taken while it was idle: too few to say what it waits for."
    if not finding.idle_samples:
        text = "No stack sample was taken while it was idle."
    if finding.failed_samples > finding.idle_samples:
        others = counted(finding.failed_samples, "other", "others")
        text += f" {others} could not be read: {finding.failure}."
    return [wrapped(text), *_places(finding.places, why), again]

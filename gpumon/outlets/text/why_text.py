"""What ``gpumon why`` prints: where a process is while its GPU idles."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.core.diagnosis.messages import WORD_OF_CAUSE
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Advice
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.stacks.evidence import CauseShare, PlaceCount, StackFinding, UserFunction
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.wording import capital, counted, in_percent, in_time, label_text, part_of
from gpumon.outlets.text.report_lines import gain_sentence
from gpumon.outlets.text.statements import joined
from gpumon.outlets.text.style import wrapped
from gpumon.pipeline.stack_watch import Ending, WatchedTime

_LIBRARY: Final = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
_MOST_PLACES: Final = 3
_LEAST_SHARE_OF_PLACE: Final = 0.1


class Why(NamedTuple):
    """Everything that the text says.

    Attributes:
        process: Name of the script or program.
        line_of: The source line of a frame; empty: unknown.
        workers: A sentence on the processes that work for it; empty: there are none.
        machine: What they want of the machine and get; empty: unknown.
        notes: Further sentences.
        longer: The command that watches for longer.
    """

    watched: WatchedTime
    process: str
    advice: Advice | None
    line_of: Callable[[StackFrame], str]
    workers: str = ""
    machine: str = ""
    notes: tuple[str, ...] = ()
    longer: str = "gpumon why --for 120"


def why_text(why: Why) -> str:
    """The result, 80 columns wide, with a line break at its end."""
    lines = [line for paragraph in _paragraphs(why) for line in paragraph]
    lines += [line for note in why.notes for line in wrapped(note, first="Note: ")]
    return "\n".join(lines) + "\n"


def _paragraphs(why: Why) -> list[list[str]]:
    watched, finding = why.watched, why.watched.finding
    first = [wrapped(joined([_ending(why), _idle_sentence(watched)]))]
    if not watched.observed_ns or watched.idle_ratio < DEFAULT_SETTINGS.lost_share:
        return first
    if finding.is_enough:
        opening = _opening(watched, finding.places, finding.idle_samples, "taken then")
        workers = [wrapped(why.workers)] if why.workers else []
        return [opening, *_places(finding.places, why), *workers, *_so(why), *_next(why)]
    if watched.is_short and finding.random_samples:
        return [*first, *_consistent(why)]
    return [*first, *_too_few(why)]


def _ending(why: Why) -> str:
    if why.watched.ending is Ending.PROCESS_ENDED:
        return f"{capital(label_text(why.process))} ended while it was watched."
    return ""


def _idle_sentence(watched: WatchedTime) -> str:
    name = f"GPU {watched.device.label}" if watched.device is not None else "The GPU"
    if not watched.observed_ns:
        because = f": {watched.trouble}" if watched.trouble else ""
        return f"{name} reported no utilisation while it was watched{because}."
    if watched.idle_ratio < DEFAULT_SETTINGS.lost_share:
        busy = part_of(watched.busy_ns, watched.observed_ns)
        return f"{name} was busy for {busy}: there is nothing to find."
    return f"{name} was idle for {part_of(watched.idle_ns, watched.observed_ns)}."


def _opening(
    watched: WatchedTime, places: tuple[PlaceCount, ...], samples: int, when: str
) -> list[str]:
    first = places[0].samples if places else 0
    was = "the training thread was in"
    return wrapped(
        f"{_idle_sentence(watched)} In {first} of {counted(samples, 'sample', 'samples')} {when}, "
        f"{was}"
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
    parts = []
    if place.what:
        parts.append(label_text(place.what))
    if place.frame is not None and place.frame != place.caller:
        parts.append(shown_path(place.frame.path))
    if place.caller is not None:
        called = "called from " if parts else ""
        parts.append(f"{called}{_where(place.caller)}")
        parts.append(why.line_of(place.caller))
    words = "   ".join(filter(None, parts)) or "no Python code that could be read"
    return wrapped(words, first="  ")


def _so(why: Why) -> list[list[str]]:
    finding = why.watched.finding
    main, function = finding.main, finding.function
    assert main is not None  # there were enough samples
    if main.cause is IdleCause.UNKNOWN:
        return [wrapped(f"So: {_unknown(why, function, main)}")]
    sentences = [f"So: {WORD_OF_CAUSE[main.cause]} ({_interval(main)}).", why.machine]
    if function is not None:
        sentences.append(f"It is in {_named(function)}.")
    return [wrapped(joined(sentences))]


def _unknown(why: Why, function: UserFunction | None, main: CauseShare) -> str:
    if function is None:
        return f"cause unknown ({_interval(main)}): none of its own functions stands out."
    share = f"{function.idle_samples} of {why.watched.finding.idle_samples} samples"
    return (
        f"cause unknown; the GPU waits while {label_text(why.process)} is in "
        f"{_named(function)} ({share}{_while_busy(why.watched.finding, function)})."
    )


def _while_busy(finding: StackFinding, function: UserFunction) -> str:
    if not function.is_compared:
        return ""
    return f", and {function.busy_samples} of {finding.busy_samples} while it worked"


def _interval(share: CauseShare) -> str:
    low, high = (in_percent(end).removesuffix(" %") for end in (share.low, share.high))
    return f"{in_percent(share.ratio)}, between {low} and {high} %"


def _named(function: UserFunction) -> str:
    """``read_shard (train.py:8), called from train.py:17``."""
    name = f"{label_text(function.frame.function)} ({_where(function.frame)})"
    if function.called_from is None:
        return name
    return f"{name}, called from {_where(function.called_from)}"


def _next(why: Why) -> list[list[str]]:
    if why.advice is not None:
        return [wrapped(f"Next: {joined([why.advice.text, gain_sentence(why.advice)])}")]
    finding = why.watched.finding
    if finding.function is not None:
        text = (
            f"if {label_text(finding.function.frame.function)} prepares batches, let it work while "
            "the GPU computes: in a thread or process that reads ahead. Tags then show what it "
            "costs: docs/hooks.md."
        )
        return [wrapped(f"Next: {text}")]
    return [wrapped("Next: tag the training run: docs/hooks.md.")]


def _consistent(why: Why) -> list[list[str]]:
    """Pauses that no window of the driver shows alone: two shares, and no proof."""
    watched, finding = why.watched, why.watched.finding
    main = finding.at_random[0]
    pauses = (
        f"Its pauses are shorter than the driver's windows ({in_time(watched.window_ns)}), so "
        f"samples were taken at random times. In {finding.random_places[0].samples} of "
        f"{counted(finding.random_samples, 'sample', 'samples')}, the training thread was in"
    )
    shares = (
        f"So: idle for {in_percent(watched.idle_ratio)} of the time, and the process "
        f"{_in_cause(main)} in {in_percent(main.ratio)} of the samples "
        f"(between {in_percent(main.low)} and {in_percent(main.high)}): suspected, not seen."
    )
    if main.cause is IdleCause.UNKNOWN:
        shares = (
            f"So: cause unknown. The GPU was idle for {in_percent(watched.idle_ratio)} of the time."
        )
    lines = [wrapped(pauses), *_places(finding.random_places, why), wrapped(shares)]
    return [*lines, wrapped("Next: tag the training run to know: docs/hooks.md.")]


def _in_cause(share: CauseShare) -> str:
    return f"{WORD_OF_CAUSE[share.cause]}"


def _too_few(why: Why) -> list[list[str]]:
    finding = why.watched.finding
    if finding.failed_samples and not (finding.idle_samples or finding.busy_samples):
        failed = counted(finding.failed_samples, "stack sample", "stack samples")
        return [wrapped(f"{failed} could not be read: {finding.failure}.")]
    few = counted(finding.idle_samples, "stack sample was", "stack samples were")
    text = f"Only {few} taken while it was idle: too few to say what it waits for."
    again = f"Next: watch for longer: `{why.longer}`."
    return [wrapped(text), *_places(finding.places, why), wrapped(again)]


# -- frames --------------------------------------------------------------------------


def shown_path(path: str) -> str:
    """A library's path within its environment; else the file's name.

    >>> shown_path("/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py")
    'torch/utils/data/dataloader.py'
    >>> shown_path("/home/ann/job/train.py")
    'train.py'
    """
    within = _LIBRARY.sub("", path)
    return label_text(within if within != path else path.rpartition("/")[2])


def _where(frame: StackFrame) -> str:
    """``train.py:41``."""
    line = "" if frame.line is None else f":{frame.line}"
    return f"{shown_path(frame.path)}{line}"

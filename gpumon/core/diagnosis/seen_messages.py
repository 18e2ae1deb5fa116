"""Sentences on what stack samples show of a GPU's pauses."""

from __future__ import annotations

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.diagnosis import messages
from gpumon.core.phase import IdleCause
from gpumon.core.stacks.evidence import StackFinding
from gpumon.core.stacks.frame_text import function_text, place_text, whole_path
from gpumon.core.stacks.frames import is_user_code
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.wording import counted

_LEAST_AT_ONE_PLACE = 0.5


def shown_by(totals: GpuTotals, cause: IdleCause) -> str:
    """What shows the time of a cause: tags, stack samples, or both."""
    seen_ns = totals.seen_ns.get(cause, 0)
    if not seen_ns:
        return messages.BY_TAGS
    is_tagged = totals.idle_ns.get(cause, 0) > seen_ns
    shown = messages.BY_BOTH if is_tagged else messages.BY_STACKS
    if not totals.seen_input_pauses:  # it was seen in an earlier stretch of a pause
        return shown
    return messages.IN_PAUSES.format(shown=shown, **_pauses(totals))


def seen_share(totals: GpuTotals) -> str:
    """In how many of the sampled pauses stack samples show a wait for input; empty: in none."""
    if not totals.seen_input_pauses:
        return ""
    return messages.SEEN_PAUSES.format(**_pauses(totals))


def _pauses(totals: GpuTotals) -> dict[str, object]:
    return {
        "seen": totals.seen_input_pauses,
        "sampled": counted(totals.sampled_pauses, "sampled pause", "sampled pauses"),
        "count": totals.pauses.count,
    }


def seen_place(finding: StackFinding | None) -> str:
    """Where the process was while the GPU was idle; empty: no place stands out."""
    if finding is None or not finding.places:
        return ""
    place, function, count = finding.places[0], finding.function, finding.idle_samples
    samples = counted(count, "stack sample", "stack samples")
    if place.cause is IdleCause.UNKNOWN and function is not None:
        busy = finding.busy_samples
        besides = messages.NOT_WHILE_BUSY.format(seen=function.busy_samples, count=busy)
        return messages.SEEN_AT.format(
            seen=function.idle_samples,
            samples=samples,
            place=function_text(function),
            besides=besides if function.is_compared else "",
        )
    if place.samples < _LEAST_AT_ONE_PLACE * count or not place_text(place):
        return ""
    where = place_text(place)
    at = messages.SEEN_AT.format(seen=place.samples, samples=samples, place=where, besides="")
    is_inside = function is not None and not _is_caller(function.frame, place.caller)
    if function is None or not is_inside:
        return at
    return f"{at} {messages.SEEN_FUNCTION.format(function=function_text(function))}"


def seen_files(finding: StackFinding | None) -> tuple[str, ...]:
    """The paths of the user's files that ``seen_place`` names, as far as they are known."""
    if finding is None or not seen_place(finding):
        return ()
    function, frames = finding.function, [finding.places[0].caller]
    if function is not None:
        frames += [function.frame, function.called_from]
    paths = [whole_path(frame) for frame in frames if frame is not None and is_user_code(frame)]
    return tuple(path for path in dict.fromkeys(paths) if path.startswith("/"))


def _is_caller(frame: StackFrame, caller: StackFrame | None) -> bool:
    return caller is not None and (frame.function, frame.path) == (caller.function, caller.path)

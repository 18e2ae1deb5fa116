"""What is wrong with a GPU beside the time it loses: it is lost, has errors, or is slowed down.

When its errors came is followed here, too: the counts that it tells do not say.
A trouble stands beside the verdict, which is of time, and changes no word of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from gpumon.core.device.driver_codes import (
    CAN_WAIT,
    OF_PROGRAMS,
    SLOWDOWNS,
    UNREADABLE,
    VANISHED,
    xid_text,
)
from gpumon.core.device.fill import GpuFill
from gpumon.core.sample import GpuDetails, GpuSample
from gpumon.core.settings.detector import DEFAULT_TROUBLE_SETTINGS, TroubleSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.verdict import Severity
from gpumon.core.wording import in_percent

UNCORRECTED: Final = "uncorrected"
"""The reason of a trouble with memory errors."""

_UNREAD: Final = "cannot be read: "
_RESET: Final = (
    "trust no result of that time; end what uses the GPU and reset it (nvidia-smi --gpu-reset), or "
    "reboot; if it comes back, have the board replaced"
)


class TroubleKind(str, Enum):
    """What kind of trouble it is, the worst first."""

    LOST = "lost"
    XID = "xid"
    ECC = "ecc"
    THROTTLED = "throttled"
    ERROR = "error"
    ENDED = "ended_early"


class Trouble(NamedTuple):
    """One thing that is wrong with one GPU.

    Attributes:
        severity: High asks somebody to act now; moderate is worth a word;
            none is long past, and told for the record.
        text: What is so, to be said after the GPU's name.
        advice: What to do, as a clause.
        code: The number of an XID.
        reason: Why it is throttled, by NVML's name; of memory errors, ``UNCORRECTED``.
        duration_ns: For how long it was so.
        last_ns: When it came last, on the report's clock; of a GPU that is lost, or
            of which a log ends early, when it was read last. ``None``: not known.
        line: The line of a log that says so first; so are the next two of a log alone.
        began_ns: When that was written, as it says itself; ``None``: it does not.
        ended_ns: When a GPU that could not be read was read again; ``None``: it was not.
    """

    kind: TroubleKind
    severity: Severity
    text: str
    advice: str
    code: int | None = None
    reason: str | None = None
    times: int | None = None
    duration_ns: int | None = None
    last_ns: int | None = None
    line: int | None = None
    began_ns: int | None = None
    ended_ns: int | None = None

    @property
    def is_of_a_lost_gpu(self) -> bool:
        """Whether the GPU cannot be read; else it can, or can be again."""
        return self.kind is TroubleKind.LOST and self.ended_ns is None

    @property
    def word(self) -> str:
        """It in a word or two: ``lost``, ``XID 79``, ``ECC``, ``throttled``, ``ended early``."""
        if self.kind is TroubleKind.XID:
            return f"XID {self.code}"
        if self.ended_ns is not None:
            return "lost before"
        return "ECC" if self.kind is TroubleKind.ECC else self.kind.value.replace("_", " ")


class ErrorTimes(NamedTuple):
    """Errors of one GPU since it was first heard; of a lost one, too.

    Attributes:
        xid_last_ns: CLOCK_MONOTONIC of the tick with the newest error of each
            XID, as pairs of XID and time.
        memory_errors: Memory errors that could not be corrected, since the
            driver was loaded; ``None`` where the board does not tell.
        memory_error_last_ns: When there was one more; ``None``: all of them
            are from before, or there is none.
    """

    xid_last_ns: tuple[tuple[int, int], ...] = ()
    memory_errors: int | None = None
    memory_error_last_ns: int | None = None

    def moved(self, by_ns: int) -> ErrorTimes:
        """The same on a clock that is so much ahead."""
        last_ns = self.memory_error_last_ns
        return self._replace(
            xid_last_ns=tuple((xid, at_ns + by_ns) for xid, at_ns in self.xid_last_ns),
            memory_error_last_ns=None if last_ns is None else last_ns + by_ns,
        )


NO_ERRORS = ErrorTimes()


class ErrorWatch:
    """Follows one GPU from tick to tick."""

    def __init__(self) -> None:
        self.errors = NO_ERRORS
        self._xids: tuple[tuple[int, int], ...] = ()

    def hear(self, sample: GpuSample, at_ns: int) -> None:
        """Take what the GPU said in one tick; what it said before is no news."""
        if sample.xid_errors != self._xids:
            self._take_xids(sample.xid_errors, at_ns)
        if sample.details is not None:
            self._take_memory_errors(sample.details.ecc_uncorrected_errors, at_ns)

    def _take_xids(self, pairs: tuple[tuple[int, int], ...], at_ns: int) -> None:
        before, self._xids = dict(self._xids), pairs
        last_ns = dict(self.errors.xid_last_ns)
        last_ns.update({xid: at_ns for xid, count in pairs if count > before.get(xid, 0)})
        self.errors = self.errors._replace(xid_last_ns=tuple(sorted(last_ns.items())))

    def _take_memory_errors(self, count: int | None, at_ns: int) -> None:
        before = self.errors.memory_errors
        if count is None or count == before:
            return
        last_ns = self.errors.memory_error_last_ns
        if before is not None and count > before:
            last_ns = at_ns
        # Fewer than before: the driver was loaded anew, or the GPU was reset.
        is_anew = before is not None and count < before
        self.errors = self.errors._replace(
            memory_errors=count, memory_error_last_ns=None if is_anew else last_ns
        )


def lost(what: str, *, last_ns: int | None = None, index: int | None = None) -> Trouble:
    """The trouble of a GPU that cannot be read: ``what`` says why not, a colon, and what to do.

    When it was read last is on the report's clock.
    """
    why, _, todo = what.partition(": ")
    return _lost(f"{_UNREAD}{why}", todo, last_ns, index)


def lost_in_log(what: str, often: str, ended_ns: int | None) -> Trouble:
    """The trouble of a GPU of which a log says that it could not be read.

    Args:
        what: As in ``lost``.
        often: How often, or for how long, as a clause.
        ended_ns: As in ``Trouble``.
    """
    if ended_ns is None:
        return lost(what)
    told, _, todo = what.partition(": ")
    text = f"could not be read {often}, where the log says: {told}"
    return _lost(text, todo, None, None)._replace(ended_ns=ended_ns)


def failed_in_log(line: int, began_ns: int | None) -> Trouble:
    """The trouble of a GPU of which a log shows an error beside a utilisation, from a line on."""
    return Trouble(
        TroubleKind.ERROR, Severity.MODERATE,
        "answered with ERR! or [Unknown Error] to a part of what it was asked",
        UNREADABLE[999].advice, line=line, began_ns=began_ns,
    )  # fmt: skip


def ended_in_log(what: str, last_ns: int) -> Trouble:
    """The trouble of a GPU of which a log tells no more from some moment on, and not why.

    Args:
        what: Since when, and how it was until then, to be said after its name.
        last_ns: That moment, on the report's clock.
    """
    return Trouble(
        TroubleKind.ENDED, Severity.MODERATE, what,
        "if it should have worked on, look for an Xid in `dmesg`; nothing is known of it from then "
        "on",
        last_ns=last_ns,
    )  # fmt: skip


def vanished(*, last_ns: int | None = None, index: int | None = None) -> Trouble:
    """The trouble of a GPU that the driver listed, and lists no longer."""
    return _lost(f"vanished: {VANISHED.meaning}", VANISHED.advice, last_ns, index)


def _lost(text: str, advice: str, last_ns: int | None, index: int | None) -> Trouble:
    which = "" if index is None else f" -i {index}"
    look = f"find out what became of it: `gpumon doctor`, `nvidia-smi -q{which}`, Xid in `dmesg`"
    return Trouble(
        TroubleKind.LOST, Severity.HIGH, text.rstrip("."), advice.rstrip(".") or look,
        last_ns=last_ns,
    )  # fmt: skip


def error_of(troubles: Sequence[Trouble]) -> str | None:
    """Why a GPU cannot be read, and what to do, as its source has it: a colon between both.

    The remedy is that of its trouble, which an XID before it may know better than its source;
    ``None``: it can be read, or is not listed.
    """
    for one in troubles:
        if one.kind is TroubleKind.LOST and one.text.startswith(_UNREAD):
            return f"{one.text.removeprefix(_UNREAD)}: {one.advice}"
    return None


def all_troubles(
    told: Sequence[Trouble], fill: GpuFill | None, error: str | None, index: int
) -> tuple[Trouble, ...]:
    """All that is wrong with one GPU, the worst first.

    What is ``told`` follows from nothing else: its errors, that it cannot be read, and what slows
    it down just now. What held its clocks down while it was busy follows from how full it was.
    """
    if not (told or fill or error):
        return ()
    gone = [one for one in told if one.kind is TroubleKind.LOST]
    errors = sorted((one for one in told if one.kind is not TroubleKind.LOST), key=_place)
    if error is not None and not gone:
        gone = [lost(error, index=index)]
    grave = [one for one in errors if one.kind is TroubleKind.XID and one.severity is Severity.HIGH]
    if grave:  # the error before it went knows more of what to do than that it went
        gone = [one._replace(advice=grave[0].advice) for one in gone]
    return tuple(sorted([*gone, *errors, *throttled(fill)], key=_place))


def errors_of(
    xid_errors: Sequence[tuple[int, int]], times: ErrorTimes, now_ns: int
) -> tuple[Trouble, ...]:
    """The errors that a GPU reported, by how many of each XID there were and when they came."""
    last_ns = dict(times.xid_last_ns)
    xids = (_xid(xid, count, last_ns.get(xid), now_ns) for xid, count in xid_errors)
    return (*xids, *_memory_errors(times, now_ns))


def troubles_since(before: Sequence[Trouble], after: Sequence[Trouble]) -> tuple[Trouble, ...]:
    """Those of a GPU that were told in the time between two reports."""
    counted = {(one.kind, one.code): one.times or 0 for one in before}
    found = []
    for one in after:
        if one.times is None:  # it is so now
            found.append(one)
            continue
        grown = one.times - counted.get((one.kind, one.code), 0)
        # Fewer than before: they were counted anew.
        count = grown if grown >= 0 else one.times
        if count and one.kind is TroubleKind.ECC:
            found.append(one._replace(times=count, text=_memory_text(count)))
        elif count:
            found.append(one._replace(times=count))
    return tuple(found)


@rule(
    "throttled",
    RuleKind.FINDING,
    says="heat, the board's protection or the power supply slows the GPU down: a trouble",
    evidence="The share of its busy time in which the driver named one such reason; the "
    "power limit is none.",
    thresholds=("trouble.min_busy_ns", "trouble.throttled_share"),
    measured_with=("fill.busy_above",),
)
def is_throttled(fill: GpuFill, settings: TroubleSettings = DEFAULT_TROUBLE_SETTINGS) -> bool:
    """Whether something that is no part of normal work held its clocks down for long."""
    held_ns = max((fill.held_by_ns.get(reason, 0) for reason in SLOWDOWNS), default=0)
    known_ns = fill.held_known_ns
    return known_ns >= settings.min_busy_ns and held_ns >= settings.throttled_share * known_ns


def throttled(fill: GpuFill | None) -> Iterator[Trouble]:
    """The trouble of a GPU that is slowed down; nothing where it is not, or does not tell."""
    if fill is None or not is_throttled(fill):
        return
    reason = max(SLOWDOWNS, key=lambda one: fill.held_by_ns.get(one, 0))
    held_ns = fill.held_by_ns[reason]
    by, advice = SLOWDOWNS[reason]
    share = in_percent(held_ns / fill.held_known_ns, DEFAULT_TROUBLE_SETTINGS.throttled_share)
    yield Trouble(
        TroubleKind.THROTTLED, Severity.MODERATE,
        f"had the clocks held down {share} of the busy time by {by} ({reason})",
        advice, reason=reason, duration_ns=held_ns,
    )  # fmt: skip


def throttled_now(details: GpuDetails | None, fill: GpuFill | None) -> Iterator[Trouble]:
    """The trouble of a GPU that is slowed down just now, where its busy time cannot tell.

    Only samples that are busy all through count for that: a GPU that idles, or
    has work for three quarters of each, has none.
    """
    reasons = () if details is None else details.throttle_reasons or ()
    known_ns = 0 if fill is None else fill.held_known_ns
    reason = next((one for one in SLOWDOWNS if one in reasons), None)
    if reason is not None and known_ns < DEFAULT_TROUBLE_SETTINGS.min_busy_ns:
        by, advice = SLOWDOWNS[reason]
        text = f"had the clocks held down when it was asked last, by {by} ({reason})"
        yield Trouble(TroubleKind.THROTTLED, Severity.MODERATE, text, advice, reason=reason)


def worst(troubles: Sequence[Trouble]) -> Severity:
    """The greatest severity among them; none where there is none."""
    return max((one.severity for one in troubles), key=attrgetter("gravity"), default=Severity.NONE)


def _xid(xid: int, count: int, last_ns: int | None, now_ns: int) -> Trouble:
    severity = Severity.HIGH
    if xid in OF_PROGRAMS or xid in CAN_WAIT:
        severity = Severity.MODERATE
    if not _is_recent(last_ns, now_ns):
        severity = Severity.NONE
    text, advice = _xid_words(xid)
    return Trouble(TroubleKind.XID, severity, text, advice, code=xid, times=count, last_ns=last_ns)


@lru_cache(maxsize=256)
def _xid_words(xid: int) -> tuple[str, str]:
    """Text and advice: the same objects for each report that is kept."""
    meaning, advice = xid_text(xid)
    return f"reported XID {xid} ({meaning})", advice


def _memory_errors(times: ErrorTimes, now_ns: int) -> Iterator[Trouble]:
    count, last_ns = times.memory_errors, times.memory_error_last_ns
    if not count:
        return
    # Without a time they are older than the daemon; and the GPU was not reset since.
    is_new = last_ns is not None and _is_recent(last_ns, now_ns)
    severity = Severity.HIGH if is_new else Severity.MODERATE
    yield Trouble(
        TroubleKind.ECC, severity, _memory_text(count), _RESET,
        reason=UNCORRECTED, times=count, last_ns=last_ns,
    )  # fmt: skip


def _memory_text(count: int) -> str:
    errors = "an error" if count == 1 else f"{count:,} errors"
    return f"met {errors} of its memory that could not be corrected"


def _is_recent(last_ns: int | None, now_ns: int) -> bool:
    return last_ns is None or now_ns - last_ns <= DEFAULT_TROUBLE_SETTINGS.recent_ns


def _place(trouble: Trouble) -> tuple[int, int, int, int]:
    kinds = [*TroubleKind]
    newest = 0 if trouble.last_ns is None else -trouble.last_ns
    return (
        -trouble.severity.gravity, kinds.index(trouble.kind), newest, trouble.code or 0,
    )  # fmt: skip

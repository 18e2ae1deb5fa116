"""What is wrong with a GPU besides lost time: it is lost, has errors, or is slowed down.

The times of its errors are tracked here, too, because the driver only counts them. A trouble is
shown next to the verdict, which is about time, and never changes it.
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
from gpumon.core.device.sm_utilisation import GpuFill
from gpumon.core.sample import GpuDetails, GpuSample
from gpumon.core.settings.detector import DEFAULT_TROUBLE_SETTINGS, TroubleSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.verdict import Severity
from gpumon.core.wording import in_percent

UNCORRECTED: Final = "uncorrected"
"""The reason of a trouble with memory errors."""

_UNREAD: Final = "cannot be read: "
_RESET: Final = (
    "do not trust results of that time; end what uses the GPU and reset it (nvidia-smi "
    "--gpu-reset), or reboot; if it comes back, replace the board"
)


class TroubleKind(str, Enum):
    """The kinds of trouble, worst first."""

    LOST = "lost"
    XID = "xid"
    ECC = "ecc"
    THROTTLED = "throttled"
    ERROR = "error"
    ENDED = "ended_early"


class Trouble(NamedTuple):
    """One thing that is wrong with one GPU.

    Attributes:
        severity: High: act now; moderate: worth mentioning; none: long past, kept for the record.
        text: What is wrong, as a predicate of the GPU.
        advice: What to do, as a clause.
        code: The number of an XID.
        reason: Why it is throttled, by NVML's name; ``UNCORRECTED`` for memory errors.
        duration_ns: How long it lasted.
        last_ns: The newest time on the report's clock; for a lost GPU, or one whose log ends
            early, of its last reading. ``None``: unknown.
        line: In a log only: the first line that shows it.
        began_ns: In a log only: the time of that line; ``None``: unknown.
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
        return self.kind is TroubleKind.LOST and self.ended_ns is None

    @property
    def short_name(self) -> str:
        """Such as ``lost``, ``XID 79``, ``ECC``, ``throttled``, ``ended early``."""
        if self.kind is TroubleKind.XID:
            return f"XID {self.code}"
        if self.ended_ns is not None:
            return "lost before"
        return "ECC" if self.kind is TroubleKind.ECC else self.kind.value.replace("_", " ")


class ErrorTimes(NamedTuple):
    """Errors of one GPU since it was first observed.

    Attributes:
        xid_last_ns: CLOCK_MONOTONIC of the tick with the newest error of each XID, as pairs of XID
            and time.
        memory_errors: Uncorrected memory errors since the driver was loaded; ``None``: unknown.
        memory_error_last_ns: When the newest came; ``None``: before observation, or there is none.
    """

    xid_last_ns: tuple[tuple[int, int], ...] = ()
    memory_errors: int | None = None
    memory_error_last_ns: int | None = None

    def moved(self, by_ns: int) -> ErrorTimes:
        """Return the same on a clock that is ahead by that much."""
        last_ns = self.memory_error_last_ns
        return self._replace(
            xid_last_ns=tuple((xid, at_ns + by_ns) for xid, at_ns in self.xid_last_ns),
            memory_error_last_ns=None if last_ns is None else last_ns + by_ns,
        )


NO_ERRORS = ErrorTimes()


class ErrorWatch:
    """Tracks the errors of one GPU."""

    def __init__(self) -> None:
        self.errors = NO_ERRORS
        self._xids: tuple[tuple[int, int], ...] = ()

    def observe(self, sample: GpuSample, at_ns: int) -> None:
        """Add the sample of one tick; errors that it had before are not new."""
        if sample.xid_errors != self._xids:
            self._add_xids(sample.xid_errors, at_ns)
        if sample.details is not None:
            self._add_memory_errors(sample.details.ecc_uncorrected_errors, at_ns)

    def _add_xids(self, pairs: tuple[tuple[int, int], ...], at_ns: int) -> None:
        before, self._xids = dict(self._xids), pairs
        last_ns = dict(self.errors.xid_last_ns)
        last_ns.update({xid: at_ns for xid, count in pairs if count > before.get(xid, 0)})
        self.errors = self.errors._replace(xid_last_ns=tuple(sorted(last_ns.items())))

    def _add_memory_errors(self, count: int | None, at_ns: int) -> None:
        before = self.errors.memory_errors
        if count is None or count == before:
            return
        last_ns = self.errors.memory_error_last_ns
        if before is not None and count > before:
            last_ns = at_ns
        # Fewer than before: the driver was loaded again, or the GPU was reset.
        is_reset = before is not None and count < before
        self.errors = self.errors._replace(
            memory_errors=count, memory_error_last_ns=None if is_reset else last_ns
        )


def lost(what: str, *, last_ns: int | None = None, index: int | None = None) -> Trouble:
    """The trouble of a GPU that cannot be read.

    Args:
        what: Why not, a colon, and what to do.
        last_ns: When it was read last, on the report's clock.
        index: NVML's number of it.
    """
    why, _, todo = what.partition(": ")
    return _lost(f"{_UNREAD}{why}", todo, last_ns, index)


def lost_in_log(what: str, often: str, ended_ns: int | None) -> Trouble:
    """The trouble of a GPU that could not be read, according to a log.

    Args:
        what: As in ``lost``.
        often: How often, or for how long, as a clause.
        ended_ns: As in ``Trouble``.
    """
    if ended_ns is None:
        return lost(what)
    reason, _, todo = what.partition(": ")
    text = f"could not be read {often}, where the log says: {reason}"
    return _lost(text, todo, None, None)._replace(ended_ns=ended_ns)


def failed_in_log(line: int, began_ns: int | None) -> Trouble:
    """The trouble of a GPU with errors next to its utilisation in a log, from a line on."""
    return Trouble(
        TroubleKind.ERROR, Severity.MODERATE,
        "answered some queries with ERR! or [Unknown Error]",
        UNREADABLE[999].advice, line=line, began_ns=began_ns,
    )  # fmt: skip


def ended_in_log(what: str, last_ns: int) -> Trouble:
    """The trouble of a GPU that is missing in the rest of a log, without a reason.

    Args:
        what: Since when, and its state until then, as a predicate of the GPU.
        last_ns: That time, on the report's clock.
    """
    return Trouble(
        TroubleKind.ENDED, Severity.MODERATE, what,
        "if it should have kept working, look for an Xid in `dmesg`; nothing is known of it after "
        "that",
        last_ns=last_ns,
    )  # fmt: skip


def vanished(*, last_ns: int | None = None, index: int | None = None) -> Trouble:
    """The trouble of a GPU that the driver no longer lists."""
    return _lost(f"vanished: {VANISHED.meaning}", VANISHED.advice, last_ns, index)


def _lost(text: str, advice: str, last_ns: int | None, index: int | None) -> Trouble:
    which = "" if index is None else f" -i {index}"
    look = f"find out what happened to it: `gpumon doctor`, `nvidia-smi -q{which}`, Xid in `dmesg`"
    return Trouble(
        TroubleKind.LOST, Severity.HIGH, text.rstrip("."), advice.rstrip(".") or look,
        last_ns=last_ns,
    )  # fmt: skip


def error_of(troubles: Sequence[Trouble]) -> str | None:
    """Return why a GPU cannot be read, a colon, and what to do; ``None``: it can be read.

    The remedy is that of its trouble: an earlier XID may have a better one than the source.
    """
    for one in troubles:
        if one.kind is TroubleKind.LOST and one.text.startswith(_UNREAD):
            return f"{one.text.removeprefix(_UNREAD)}: {one.advice}"
    return None


def all_troubles(
    known: Sequence[Trouble], fill: GpuFill | None, error: str | None, index: int
) -> tuple[Trouble, ...]:
    """Return all troubles of one GPU, worst first.

    Args:
        known: Its errors, that it is lost, and what slows it down now.
        fill: Its sums, which show what held its clocks down while it was busy.
        error: Why it cannot be read, and what to do.
        index: NVML's number of it.
    """
    if not (known or fill or error):
        return ()
    gone = [one for one in known if one.kind is TroubleKind.LOST]
    errors = sorted((one for one in known if one.kind is not TroubleKind.LOST), key=_place)
    if error is not None and not gone:
        gone = [lost(error, index=index)]
    grave = [one for one in errors if one.kind is TroubleKind.XID and one.severity is Severity.HIGH]
    if grave:  # the error before it was lost has the better remedy
        gone = [one._replace(advice=grave[0].advice) for one in gone]
    return tuple(sorted([*gone, *errors, *throttled(fill)], key=_place))


def errors_of(
    xid_errors: Sequence[tuple[int, int]], times: ErrorTimes, now_ns: int
) -> tuple[Trouble, ...]:
    """Return the troubles of a GPU's errors, given the counts of XIDs and their times."""
    last_ns = dict(times.xid_last_ns)
    xids = (_xid(xid, count, last_ns.get(xid), now_ns) for xid, count in xid_errors)
    return (*xids, *_memory_errors(times, now_ns))


def troubles_since(before: Sequence[Trouble], after: Sequence[Trouble]) -> tuple[Trouble, ...]:
    """Return the troubles of a GPU that came between two reports."""
    counted = {(one.kind, one.code): one.times or 0 for one in before}
    found = []
    for one in after:
        if one.times is None:  # it is so now
            found.append(one)
            continue
        grown = one.times - counted.get((one.kind, one.code), 0)
        # Fewer than before: the count restarted.
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
    """Whether heat, power or the board's protection held its clocks down for long."""
    slowed_ns = max((fill.throttled_by_ns.get(reason, 0) for reason in SLOWDOWNS), default=0)
    known_ns = fill.throttle_known_ns
    return known_ns >= settings.min_busy_ns and slowed_ns >= settings.throttled_share * known_ns


def throttled(fill: GpuFill | None) -> Iterator[Trouble]:
    """Yield the trouble of a GPU that was slowed down, if its sums show it."""
    if fill is None or not is_throttled(fill):
        return
    reason = max(SLOWDOWNS, key=lambda one: fill.throttled_by_ns.get(one, 0))
    slowed_ns = fill.throttled_by_ns[reason]
    by, advice = SLOWDOWNS[reason]
    share = in_percent(slowed_ns / fill.throttle_known_ns, DEFAULT_TROUBLE_SETTINGS.throttled_share)
    yield Trouble(
        TroubleKind.THROTTLED, Severity.MODERATE,
        f"had its clocks reduced {share} of its busy time by {by} ({reason})",
        advice, reason=reason, duration_ns=slowed_ns,
    )  # fmt: skip


def throttled_now(details: GpuDetails | None, fill: GpuFill | None) -> Iterator[Trouble]:
    """Yield the trouble of a GPU that is slowed down now, where its sums cannot show it.

    Sums contain only completely busy samples: a GPU that is partly idle in each has none.
    """
    reasons = () if details is None else details.throttle_reasons or ()
    known_ns = 0 if fill is None else fill.throttle_known_ns
    reason = next((one for one in SLOWDOWNS if one in reasons), None)
    if reason is not None and known_ns < DEFAULT_TROUBLE_SETTINGS.min_busy_ns:
        by, advice = SLOWDOWNS[reason]
        text = f"had its clocks reduced when it was last read, by {by} ({reason})"
        yield Trouble(TroubleKind.THROTTLED, Severity.MODERATE, text, advice, reason=reason)


def worst(troubles: Sequence[Trouble]) -> Severity:
    """Return the greatest severity of these troubles."""
    return max((one.severity for one in troubles), key=attrgetter("gravity"), default=Severity.NONE)


def _xid(xid: int, count: int, last_ns: int | None, now_ns: int) -> Trouble:
    severity = Severity.HIGH
    if xid in OF_PROGRAMS or xid in CAN_WAIT:
        severity = Severity.MODERATE
    if not _is_recent(last_ns, now_ns):
        severity = Severity.NONE
    text, advice = _xid_clauses(xid)
    return Trouble(TroubleKind.XID, severity, text, advice, code=xid, times=count, last_ns=last_ns)


@lru_cache(maxsize=256)
def _xid_clauses(xid: int) -> tuple[str, str]:
    """Text and advice: the same objects for each report that is kept."""
    meaning, advice = xid_text(xid)
    return f"reported XID {xid} ({meaning})", advice


def _memory_errors(times: ErrorTimes, now_ns: int) -> Iterator[Trouble]:
    count, last_ns = times.memory_errors, times.memory_error_last_ns
    if not count:
        return
    # Without a time they are older than the daemon, and the GPU was not reset since.
    is_new = last_ns is not None and _is_recent(last_ns, now_ns)
    severity = Severity.HIGH if is_new else Severity.MODERATE
    yield Trouble(
        TroubleKind.ECC, severity, _memory_text(count), _RESET,
        reason=UNCORRECTED, times=count, last_ns=last_ns,
    )  # fmt: skip


def _memory_text(count: int) -> str:
    errors = "an error" if count == 1 else f"{count:,} errors"
    return f"had {errors} of its memory that could not be corrected"


def _is_recent(last_ns: int | None, now_ns: int) -> bool:
    return last_ns is None or now_ns - last_ns <= DEFAULT_TROUBLE_SETTINGS.recent_ns


def _place(trouble: Trouble) -> tuple[int, int, int, int]:
    kinds = [*TroubleKind]
    newest = 0 if trouble.last_ns is None else -trouble.last_ns
    return (
        -trouble.severity.gravity, kinds.index(trouble.kind), newest, trouble.code or 0,
    )  # fmt: skip

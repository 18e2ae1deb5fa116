"""The doctor's findings, and their text: a table of each kind of board, and what to type."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpumon.core.wording import gpus_named, listed, plainly
from gpumon.outlets.text.style import WIDTH, TextStyle

OK: Final = "ok"
MISSING: Final = "missing"
BROKEN: Final = "broken"
OFF: Final = "off"

GPUS: Final = "GPUs"
DRIVER: Final = "Driver"
MACHINE: Final = "Machine"
SOURCE: Final = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was examined.

    Attributes:
        status: ``ok``, ``missing`` (nothing breaks, less is shown), ``broken``, or ``off`` (not
            asked for).
        detail: What was found.
        fix: What to do; ``None``: nothing.
        group: ``GPUs``, ``Driver`` or ``Machine``.
        gpu: Its GPU, such as ``"0"``, or ``"0:1"`` for a MIG instance; ``None``: the machine.
        what: What was examined; empty: the GPU itself.
        period_seconds: How often it is read by default; 0: in each tick; ``None``: it is no field
            of a GPU, or is waited for.
        reading_microseconds: What one reading takes inside the driver.
        seconds_per_second: Time inside the driver for each second, at that cadence.
    """

    status: str = OK
    detail: str
    fix: str | None = None
    group: str = GPUS
    gpu: str | None = None
    what: str = ""
    period_seconds: float | None = None
    reading_microseconds: float | None = None
    seconds_per_second: float | None = None

    @property
    def name(self) -> str:
        """Its name for scripts: what was examined, and its GPU."""
        if self.gpu is not None:
            return f"gpu {self.gpu} {self.what}".rstrip()
        return "gpu source" if self.what == SOURCE else self.what


def finding_of(
    group: str,
    what: str,
    detail: str,
    *,
    status: str = OK,
    fix: str | None = None,
    share: float | None = None,
) -> Finding:
    """A finding that belongs to no GPU; ``share``: its seconds of each second."""
    return Finding(
        what=what, status=status, detail=detail, fix=fix, group=group, seconds_per_second=share
    )


def with_one_remedy(findings: Sequence[Finding]) -> list[Finding]:
    """Give a lost GPU the remedy of the error that the daemon recorded before."""
    remedies = {
        finding.name.partition(" XID ")[0]: finding.fix
        for finding in reversed(findings)  # the worst comes first
        if finding.group == MACHINE and " XID " in finding.name and finding.status == BROKEN
    }
    return [
        replace(finding, fix=remedies[finding.name])
        if finding.status == BROKEN and finding.gpu is not None and finding.name in remedies
        else finding
        for finding in findings
    ]


_MAX_GPUS: Final = 8
"""GPUs that are named: more than elsewhere, because each needs the remedy."""
_MARKS: Final = {OK: "✓", MISSING: "!", BROKEN: "✗", OFF: "·"}
_PLAIN_MARKS: Final = {OK: "+", MISSING: "!", BROKEN: "x", OFF: "-"}
_COLOURS: Final = {OK: "green", MISSING: "yellow", BROKEN: "red"}
_NAME: Final = 18
_LEAST_PERCENT: Final = 0.001
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:ms|us|s|%|W|MHz|GiB|kJ|C)(?!\w))")
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_LEGEND: Final = {OK: "works", MISSING: "less is shown", BROKEN: "broken", OFF: "not asked for"}


def render_findings(findings: Sequence[Finding], style: TextStyle) -> Iterator[str]:
    """Yield the complete text, line by line, 80 columns wide."""
    legend = [f"{_mark(status, style)} {meaning}" for status, meaning in _LEGEND.items()]
    yield f"gpumon doctor: {'   '.join(legend)}"
    for group in (GPUS, DRIVER, MACHINE):
        rows = [finding for finding in findings if finding.group == group]
        if rows:
            yield ""
            yield style.painted(group, "bold")
            yield from _group(rows, style)
    yield from _fixes(findings, style)


def _group(rows: Sequence[Finding], style: TextStyle) -> Iterator[str]:
    for finding in rows:
        if finding.gpu is None:
            yield from _line(finding, style)
    for alike in _kinds(rows):
        yield from _board(*alike, style)


# -- one table for each kind of board ----------------------------------------------


def _kinds(rows: Sequence[Finding]) -> Iterator[tuple[list[Finding], list[str]]]:
    by_gpu: dict[str, list[Finding]] = {}
    for finding in rows:
        if finding.gpu is not None:
            by_gpu.setdefault(finding.gpu, []).append(finding)
    kinds: dict[tuple[object, ...], list[str]] = {}
    for gpu, findings in by_gpu.items():
        kinds.setdefault(_likeness(findings), []).append(gpu)
    for gpus in kinds.values():
        yield by_gpu[gpus[0]], gpus


def _likeness(findings: Sequence[Finding]) -> tuple[object, ...]:
    """What two GPUs must have in common to be shown as one: all but their values."""
    board = findings[0].detail.partition(",")[0] if findings[0].status == OK else ""
    return (
        board,
        *((one.what, one.status, one.fix, None if one.status == OK else one.detail)
          for one in findings),
    )  # fmt: skip


def _board(findings: Sequence[Finding], gpus: Sequence[str], style: TextStyle) -> Iterator[str]:
    identity, *fields = findings
    yield ""
    mark = "" if identity.status == OK else f"{_mark(identity.status, style)} "
    title = f"{mark}GPU {gpus[0]}: {style.plain(identity.detail)}"
    lines = textwrap.wrap(title, WIDTH - 2, initial_indent="  ", subsequent_indent="    ")
    colour = "bold" if identity.status == OK else _COLOURS[identity.status]
    yield from (style.painted(line, colour) for line in lines)
    if len(gpus) > 1:
        same = style.plain(gpus_named(gpus[1:], _MAX_GPUS))
        yield f"  {same}: the same; the values below are of GPU {gpus[0]}"
    if any(field.reading_microseconds is not None for field in fields):
        head = _cells("field", "every", "takes", "of a second")
        yield style.painted(f"    {head}  value", "bold")
        opt_in = [
            field for field in fields if field.status == OFF and field.detail.startswith("opt-in")
        ]
        for finding in fields:
            if finding not in opt_in:
                yield from _row(finding, style)
        yield from _not_asked(opt_in, style)
    else:
        for finding in fields:
            yield from _line(finding, style)


def _row(finding: Finding, style: TextStyle) -> Iterator[str]:
    if finding.reading_microseconds is None and finding.period_seconds is None:
        yield from _line(finding, style)
        return
    takes = _takes(finding.reading_microseconds)
    share = _share(finding.seconds_per_second)
    yield from _table_line(finding, _cells(finding.what, _every(finding), takes, share), style)


def _cells(what: str, every: str, takes: str, share: str) -> str:
    return f"{what:<{_NAME}}{every:<6}{takes:>7}{share:>13}"


def _not_asked(fields: Sequence[Finding], style: TextStyle) -> Iterator[str]:
    if not fields:
        return
    prices = [f"{field.what}{_in_brackets(field.detail)}" for field in fields]
    text = f"{'; '.join(prices)}: --nvml-on FIELD,... reads them, here and in gpumon serve"
    yield from _line(replace(fields[0], what="opt-in", detail=text), style)


def _in_brackets(detail: str) -> str:
    _, _, price = detail.partition(": ")
    return f" ({price})" if price[:1].isdigit() else ""


def _every(finding: Finding) -> str:
    if finding.period_seconds is None:
        return "waits"
    return f"{plainly(finding.period_seconds)} s" if finding.period_seconds else "tick"


def _takes(us: float | None) -> str:
    if us is None:
        return "-"
    if us >= 1000:
        return f"{plainly(us / 1000, 3)} ms"
    digits = 2 if us < 1 else 1 if us < 10 else 0
    return f"{us:.{digits}f} us"


def _share(share: float | None) -> str:
    if share is None:
        return "-"
    percent = 100 * share
    return f"{plainly(percent, 2)} %" if percent >= _LEAST_PERCENT else f"< {_LEAST_PERCENT} %"


# -- everything else ---------------------------------------------------------------


def _line(finding: Finding, style: TextStyle) -> Iterator[str]:
    yield from _table_line(finding, finding.what.ljust(_NAME), style)


def _table_line(finding: Finding, cells: str, style: TextStyle) -> Iterator[str]:
    """A line of cells, then the detail, which continues below itself."""
    mark = _mark(finding.status, style)
    indent = 4 + len(cells) + 2
    first, *more = _wrapped(finding.detail, WIDTH - indent)
    shown = style.painted(mark, colour) if (colour := _COLOURS.get(finding.status)) else mark
    yield f"  {shown} {cells}  {style.plain(first)}".rstrip()
    for line in more:
        yield f"{' ' * indent}{style.plain(line)}"


def _mark(status: str, style: TextStyle) -> str:
    return (_MARKS if style.unicode else _PLAIN_MARKS)[status]


def _wrapped(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(_BEFORE_UNIT.sub(_NO_BREAK, text), width, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines] or [""]


def _fixes(findings: Sequence[Finding], style: TextStyle) -> Iterator[str]:
    names: dict[str, list[Finding]] = {}
    for status in (BROKEN, MISSING):
        for finding in findings:
            if finding.status == status and finding.fix:
                names.setdefault(finding.fix, []).append(finding)
    if not names:
        return
    yield ""
    yield style.painted("Fix", "bold")
    for number, (fix, of) in enumerate(names.items(), start=1):
        first = f"  {number}. "
        lines = textwrap.wrap(
            f"{_whose(of)}: {fix}",
            WIDTH,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_on_hyphens=False,
            break_long_words=False,
        )
        yield from (style.plain(line) for line in lines)


def _whose(findings: Sequence[Finding]) -> str:
    whats = list(dict.fromkeys(finding.what for finding in findings if finding.what))
    gpus = list(dict.fromkeys(finding.gpu for finding in findings if finding.gpu is not None))
    gpus = [gpu for gpu in gpus if not any(what.startswith(f"gpu {gpu} ") for what in whats)]
    where = [gpus_named(gpus, _MAX_GPUS)] if gpus else []
    return " ".join([*where, *([listed(whats)] if whats else [])])

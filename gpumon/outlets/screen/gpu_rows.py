"""One row a GPU: which columns fit into a width, and what each shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from gpumon.core.view.view import BUSY, GpuView
from gpumon.core.wording import in_percent
from gpumon.outlets.screen.ink import Ink

_GIB: Final = 1 << 30
_SINCE: Final = "since "
_UTC: Final = " UTC"
_LONGEST_STATE, _LONGEST_NAME, _LONGEST_RUN = 22, 16, 24
_LEAST_CAUSE, _WISHED_CAUSE, _MOST_CAUSE = 16, 27, 60
_LEAST_SPARK, _MOST_SPARK = 10, 60
_LEAST_BAR, _MOST_BAR = 6, 12
_GROWTHS: Final = (8, 6, _MOST_CAUSE)
"""Columns that each may grow by in turn, while there is room."""
_GAP: Final = 1
_ALWAYS: Final = 1
"""Columns up to this rank are shown in whatever width there is."""
_WISHES_FROM: Final = 9
"""Columns of this rank or later come after what others wish to have."""
NO_ANSWER: Final = "\N{EN DASH}"
_LEVEL: Final = "quiet"
"""What colours memory and power."""

_Draw = Callable[[GpuView, int], Text]


class _Column(NamedTuple):
    """A column: its least and greatest width, and how it is drawn in a width.

    Attributes:
        rank: Columns of a lower rank get their place first.
        wish: The width that it gets before there are columns of less importance.
    """

    heading: str
    rank: int
    least: int
    most: int
    draw: _Draw
    is_right: bool = False
    wish: int = 0


class RowLayout:
    """The table of the GPUs in a width. Every row begins ``GPU n``.

    Args:
        gpus: The GPUs that it is for: a column without any content is left out.
        width: Columns of the terminal.
        ink: How to draw.
        seen: The greatest width of each column so far, which is kept up: then columns stay where
            they are from tick to tick.
    """

    def __init__(
        self, gpus: Sequence[GpuView], width: int, ink: Ink, seen: dict[str, int] | None = None
    ) -> None:
        self._ink, self._width = ink, width
        self._columns = _fitting(_columns(gpus, ink, {} if seen is None else seen), width)

    def heading(self) -> Text:
        """The headings of the columns."""
        cells = [
            self._ink.fitted(Text(column.heading), width, right=column.is_right)
            for column, width in self._columns
        ]
        line = Text(" " * _GAP).join(cells)
        line.stylize(self._ink.colour("quiet"))
        return self._ink.fitted(line, self._width)

    def row(self, gpu: GpuView) -> Text:
        """The row of one GPU."""
        cells = [
            self._ink.fitted(column.draw(gpu, width), width, right=column.is_right)
            for column, width in self._columns
        ]
        return self._ink.fitted(Text(" " * _GAP).join(cells), self._width)


def gpu_name(gpu: GpuView) -> str:
    """How a row names a GPU."""
    return f"GPU {gpu.label}"


def state_of(gpu: GpuView, ink: Ink) -> Text:
    """The status in its shape, word and tone."""
    shape = f"{gpu.status.shape} " if ink.unicode else ""
    return ink.text(f"{shape}{gpu.status.word}", ink.colour(gpu.status.tone.value))


def command_of(gpu: GpuView) -> str:
    """The program that holds it, or that has most of its memory; empty: unknown."""
    if gpu.held_by is not None and gpu.held_by.command:
        return gpu.held_by.command
    return (gpu.processes[0].command or "") if gpu.processes else ""


def user_of(gpu: GpuView) -> str:
    """The user whose process that is; empty: unknown."""
    return gpu.user or ""


def cause_of(gpu: GpuView) -> str:
    """What it waits for and why, or else what is the matter with it; empty: nothing is."""
    if gpu.cause_text:
        return f"{gpu.cause_text}: {gpu.reason_text}" if gpu.reason_text else gpu.cause_text
    return gpu.line.removeprefix(f"{gpu_name(gpu)} ")


def _columns(gpus: Sequence[GpuView], ink: Ink, seen: dict[str, int]) -> list[_Column]:
    """All columns in the order in which they are shown; without content, their width is 0."""

    def longest(name: str, read: Callable[[GpuView], str]) -> int:
        now = max((cell_len(ink.text(read(gpu)).plain) for gpu in gpus), default=0)
        seen[name] = max(now, seen.get(name, 0))
        return seen[name]

    states = longest("state", lambda gpu: state_of(gpu, ink).plain)
    causes = longest("why", cause_of)

    def text(
        heading: str, rank: int, read: Callable[[GpuView], str], most: int, *, right: bool = False
    ) -> _Column:
        needed = longest(heading, read)
        width = min(most, max(needed, cell_len(heading))) if needed else 0
        return _Column(heading, rank, width, width, lambda gpu, _: ink.text(read(gpu)), right)

    def bar(name: str, rank: int, read: Callable[[GpuView], Mapping[str, float]]) -> _Column:
        seen[f"bar of {name}"] = has_any = max(any(map(read, gpus)), seen.get(f"bar of {name}", 0))
        return _Column(
            "", rank, has_any * _LEAST_BAR, has_any * _MOST_BAR,
            lambda gpu, width: ink.bar(shares, width) if (shares := read(gpu)) else Text(),
        )  # fmt: skip

    def state(gpu: GpuView, width: int) -> Text:
        return state_of(gpu, ink)

    def spark(gpu: GpuView, width: int) -> Text:
        return ink.spark(gpu.cells, width)

    def cause(gpu: GpuView, width: int) -> Text:
        return ink.text(cause_of(gpu))

    has_cells = seen["10 min"] = max(any(gpu.cells.parts for gpu in gpus), seen.get("10 min", 0))
    width_of_state = min(states, _LONGEST_STATE)
    return [
        text("", 0, gpu_name, 40),
        _Column("state", 1, width_of_state, width_of_state, state),
        text("since", 7, _since, 17),
        bar("busy", 9, _busy_part),
        text("busy", 2, _busy, 7, right=True),
        bar("lost", 9, lambda gpu: gpu.lost_by_cause),
        text("lost", 3, _lost, 7, right=True),
        _Column("10 min", 6, has_cells * _LEAST_SPARK, has_cells * _MOST_SPARK, spark),
        bar("memory", 12, _memory_part),
        text("GiB", 5, _memory, 14, right=True),
        bar("power", 14, _power_part),
        text("W", 8, _power, 14, right=True),
        text("°C" if ink.unicode else "C", 13, _temperature, 4, right=True),
        text("user", 5, user_of, _LONGEST_NAME),
        _Column(
            "why",
            4,
            min(_LEAST_CAUSE, causes),
            min(max(causes, 3), _MOST_CAUSE),
            cause,
            wish=min(causes, _WISHED_CAUSE),
        ),
        text("command", 10, command_of, _LONGEST_NAME),
        text("run", 11, lambda gpu: ", ".join(gpu.runs), _LONGEST_RUN),
    ]


def _fitting(columns: Sequence[_Column], width: int) -> list[tuple[_Column, int]]:
    """The columns that fit, and their widths: by rank at their least, then the rest in turn."""
    chosen: dict[int, int] = {}
    left, by_rank = width + _GAP, sorted(range(len(columns)), key=lambda at: columns[at].rank)

    def grow(at: int, most: int) -> int:
        more = max(0, min(left, most - chosen[at]))
        chosen[at] += more
        return more

    for at in by_rank:
        if columns[at].rank >= _WISHES_FROM:
            left -= sum(grow(one, columns[one].wish) for one in chosen)
        least = columns[at].least
        is_always = columns[at].rank <= _ALWAYS
        if least and (least + _GAP <= left or (is_always and left > _GAP)):
            chosen[at] = min(least, max(0, left - _GAP))
            left -= chosen[at] + _GAP
    for growth in _GROWTHS:
        for at in (one for one in by_rank if one in chosen):
            left -= grow(at, min(chosen[at] + growth, columns[at].most))
    return [(columns[at], chosen[at]) for at in sorted(chosen)]


def _busy(gpu: GpuView) -> str:
    return _percent(gpu.utilization_ratio)


def _lost(gpu: GpuView) -> str:
    return _percent(gpu.lost_ratio)


def _percent(ratio: float | None) -> str:
    return NO_ANSWER if ratio is None else in_percent(ratio)


def _busy_part(gpu: GpuView) -> Mapping[str, float]:
    return {} if gpu.utilization_ratio is None else {BUSY: gpu.utilization_ratio}


def _memory_part(gpu: GpuView) -> Mapping[str, float]:
    used, whole = gpu.memory_used_bytes, gpu.memory_capacity_bytes
    return {} if used is None or not whole else {_LEVEL: used / whole}


def _power_part(gpu: GpuView) -> Mapping[str, float]:
    used, most = gpu.power_watts, gpu.power_limit_watts
    return {} if used is None or not most else {_LEVEL: used / most}


def _memory(gpu: GpuView) -> str:
    if gpu.memory_used_bytes is None:
        return ""
    used = gpu.memory_used_bytes / _GIB
    text = f"{used:.0f}" if used >= 10 or not used else f"{used:.1f}"
    whole = gpu.memory_capacity_bytes
    return text if whole is None else f"{text}/{whole / _GIB:.0f}"


def _power(gpu: GpuView) -> str:
    if gpu.power_watts is None:
        return ""
    limit = gpu.power_limit_watts
    return f"{gpu.power_watts:.0f}" + ("" if limit is None else f"/{limit:.0f}")


def _temperature(gpu: GpuView) -> str:
    degrees = gpu.temperature_celsius
    return "" if degrees is None else f"{degrees:.0f}"


def _since(gpu: GpuView) -> str:
    """The time alone: its zone is in the first line of the screen."""
    return gpu.since_text.removeprefix(_SINCE).removesuffix(_UTC).strip()

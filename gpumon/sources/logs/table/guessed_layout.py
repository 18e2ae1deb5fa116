"""Finds the columns of a log without a header by the shape of their cells, or refuses it.

``body`` is the first rows, their cells without surrounding blanks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import BEST_QUERY, WITH_MIG
from gpumon.sources.logs.stamps.stamp_parsers import (
    FIRST_EPOCH_NS,
    WrittenStamps,
    parser_among,
    parser_for,
)
from gpumon.sources.logs.table.column_layout import (
    ColumnLayout,
    chosen_columns,
)
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.gpu_rows import TICK_SHARE
from gpumon.sources.logs.table.headings import chosen_unit_is_percent

_PERCENT: Final = re.compile(r"[-+]?\d+([.,]\d+)?\s*%|\[[^\]]*\]|N/A")
_SHARE: Final = re.compile(r"(?:\d{1,2}|100)([.,]\d+)?\s*%?|\[[^\]]*\]|N/A")
_PERCENT_SEEN: Final = re.compile(r"\d+([.,]\d+)?\s*%")
_NUMBER_SEEN: Final = re.compile(r"\d+([.,]\d+)?(\s*%)?")
_BARE_NUMBER: Final = re.compile(r"\d+([.,]\d+)?")
_UNIT_ALONE: Final = re.compile(r"[KMG]i?B|W|MHz|RPM", re.I)
_DATE_ALONE: Final = re.compile(r"\d{1,4}([-/.])\d\d?\1\d{2,4}|[A-Za-z]{3,9},? \d\d?(,? \d{4})?")
_TIME_ALONE: Final = re.compile(r"\d\d?:\d\d(:\d\d([.,]\d+)?)?( ?[AaPp][Mm])?")
_UUID: Final = re.compile(r"(GPU|MIG)-[0-9a-fA-F-]{4,}")
_BUS_ID: Final = re.compile(r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d")
_GPU_NUMBER: Final = re.compile(r"\d{1,4}", re.ASCII)
_MODEL: Final = re.compile(r".*(NVIDIA|Tesla|GeForce|Quadro|RTX|GTX|TITAN).*")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_.]{2,}[:=]?|[A-Za-z][\w.]*[=:]\S*", re.ASCII)
_USUAL_WORD: Final = re.compile(
    r"NVIDIA|Tesla|GeForce|Quadro|RTX|GTX|TITAN|Graphics|Device|Laptop|GPU|Ti|Super|PCIe|SXM\d?"
    r"|(?:Ki|Mi|Gi|k|M|G)?B|MHz|(?:Not |In)?Active|Enabled|Disabled|Default|None|UTC|GMT|CES?T"
    r"|(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
    r"|Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sep(?:tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?",
    re.I,
)
"""Words between the numbers of a GPU log that do not make it a sentence."""
_UNANSWERED: Final = re.compile(r"\[[^\]]*\]|N/A", re.I)
_MIN_SHARE: Final = 0.8
"""Share of the rows whose cell must have a column's shape."""


def guess_layout(
    rows: Sequence[Sequence[str]],
    chosen: Mapping[str, int | str],
    source: str,
    *,
    is_apart: bool = True,
) -> tuple[ColumnLayout, str]:
    """Return the layout of a log without a header, and a note.

    ``is_apart``: not only blanks separate the cells, as they would in a sentence.

    Raises:
        UnreadableLogError: No or several columns could be the utilisation, or lines are sentences.
        UsageError: The user named a column that does not exist.
    """
    width = _usual_width(rows, source)
    body = [[cell.strip() for cell in row] for row in rows if len(row) == width]
    positions = _by_shape(body, width)
    positions.update(chosen_columns(chosen, width))
    counting = _columns_that_count_gpus(body, positions.get(Column.STAMP))
    free = [column for column in _free(width, positions) if column not in counting]
    for column in _free(width, positions):
        if column in counting:
            positions.setdefault(Column.INDEX, column)
    if Column.UTILIZATION not in positions:
        words = _words_in(body)
        if words and not is_apart:
            raise _refuse_words(words, source)
        positions[Column.UTILIZATION] = _utilization_among(body, free, source)
        if words and not _is_percent_column(body, positions[Column.UTILIZATION]):
            raise _refuse_words(words, source)
    listed = ", ".join(
        f"column {position + 1} as {column.value}"
        for column, position in sorted(positions.items(), key=lambda item: item[1])
    )
    note = f"The log has no header: took {listed}. Use --column NAME=N if that is wrong."
    percent = chosen_unit_is_percent(chosen)
    return ColumnLayout(width=width, positions=positions, is_percent=percent), note


def _words_in(body: Sequence[Sequence[str]]) -> list[str]:
    """Return the first cell of each column of words that GPU logs do not have."""
    return [
        cell
        for column, cell in enumerate(body[0] if body else ())
        if _most(body, column, _WORD.fullmatch) and not _most(body, column, _USUAL_WORD.fullmatch)
    ]


def _refuse_words(words: Sequence[str], source: str) -> UnreadableLogError:
    listed = ", ".join(word[:30] for word in words[:4])
    return UnreadableLogError(
        f"{source}: line 1: no header, and the lines contain words ({listed}): name the column of "
        f"the utilisation with --column utilization.gpu=N, or log with {BEST_QUERY}"
    )


def _free(width: int, positions: Mapping[Column, int]) -> list[int]:
    taken = set(positions.values())
    return [column for column in range(width) if column not in taken]


def _usual_width(rows: Sequence[Sequence[str]], source: str) -> int:
    widths = Counter(len(row) for row in rows if any(cell.strip() for cell in row))
    if not widths:
        raise UnreadableLogError(f"{source}: has no line with anything in it")
    return widths.most_common(1)[0][0]


def _by_shape(body: Sequence[Sequence[str]], width: int) -> dict[Column, int]:
    shapes: tuple[tuple[Column, Callable[[str], object]], ...] = (
        (Column.STAMP, _is_wall_stamp),
        (Column.UUID, _UUID.fullmatch),
        (Column.BUS_ID, _BUS_ID.fullmatch),
        (Column.NAME, _MODEL.fullmatch),
    )
    positions: dict[Column, int] = {}
    for column, fits in shapes:
        for position in range(width):
            if position not in positions.values() and _most(body, position, fits):
                positions[column] = position
                break
    if Column.STAMP not in positions:
        positions |= _date_and_time(body, width)
    return positions


def _date_and_time(body: Sequence[Sequence[str]], width: int) -> dict[Column, int]:
    for position in range(1, width):
        if _most(body, position, _TIME_ALONE.fullmatch):
            if _most(body, position - 1, _DATE_ALONE.fullmatch):
                return {Column.DATE: position - 1, Column.STAMP: position}
            return {Column.STAMP: position}
    return {Column.STAMP: 0} if width > 1 and _most(body, 0, _TIME_ALONE.fullmatch) else {}


def column_of_dates(body: Sequence[Sequence[str]], free: Sequence[int]) -> int | None:
    """Return the column whose cells are rising times; ``None``: there is none."""
    return next((at for at in free if _most(body, at, _is_wall_stamp) and _rises(body, at)), None)


def are_shares(body: Sequence[Sequence[str]], column: int) -> bool:
    """Return whether most cells of a column may be a utilisation."""
    cells = [[cell.strip() for cell in row] for row in body[:64]]
    return _most(cells, column, _SHARE.fullmatch)


def _rises(body: Sequence[Sequence[str]], column: int) -> bool:
    """Return whether the stamps of a column rise, and are since 1998."""
    parser = parser_among([row[column] for row in body])
    stamps_ns = [parser.parse(row[column]) for row in body] if parser is not None else []
    known = [stamp_ns for stamp_ns in stamps_ns if stamp_ns is not None]
    steps_ns = [after - before for before, after in pairwise(known)]
    if not any(steps_ns) or sum(at >= FIRST_EPOCH_NS for at in known) < _MIN_SHARE * len(known):
        return False
    return sum(step_ns >= 0 for step_ns in steps_ns) >= _MIN_SHARE * len(steps_ns)


def _columns_that_count_gpus(body: Sequence[Sequence[str]], stamp_at: int | None) -> list[int]:
    """Return columns that run from 0 to n - 1 in every tick, as an index does."""
    if stamp_at is None:
        return []
    parser = parser_among([row[stamp_at] for row in body])
    if parser is None:
        return []
    times = [(parser.parse(row[stamp_at]), row) for row in body]
    stamped = [(stamp_ns, row) for stamp_ns, row in times if stamp_ns is not None]
    stamps_ns = [stamp_ns for stamp_ns, _ in stamped]
    return [
        column
        for column in range(len(body[0]))
        if column != stamp_at and _counts_gpus([row[column] for _, row in stamped], stamps_ns)
    ]


def _counts_gpus(cells: Sequence[str], stamps_ns: Sequence[int]) -> bool:
    if not cells or not all(_GPU_NUMBER.fullmatch(cell) for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    gpus = max(numbers) + 1
    # One tick proves nothing: utilisations may happen to be 0 and 1.
    if gpus < 2 or len(numbers) < 2 * gpus or set(numbers) != set(range(gpus)):
        return False
    pairs = list(pairwise(numbers))
    gaps_ns = [abs(after - before) for before, after in pairwise(stamps_ns)]
    in_turn = sum(after == (before + 1) % gpus for before, after in pairs)
    within = [gap for (before, after), gap in zip(pairs, gaps_ns, strict=True) if after > before]
    between = [gap for (before, after), gap in zip(pairs, gaps_ns, strict=True) if after <= before]
    if in_turn < _MIN_SHARE * len(pairs) or not within or not between:
        return False
    # The mean: with stamps of full minutes, most ticks follow at once.
    return mean(within) < TICK_SHARE * mean(between)


def _utilization_among(body: Sequence[Sequence[str]], free: Sequence[int], source: str) -> int:
    percents = [column for column in free if _is_percent_column(body, column)]
    numbers = [
        column
        for column in free
        if _most(body, column, _BARE_NUMBER.fullmatch)
        and not (column + 1 < len(body[0]) and _most(body, column + 1, _UNIT_ALONE.fullmatch))
    ]
    candidates = percents or numbers
    over = {column: _rows_over_100(body, column) for column in candidates}
    # A damaged value may exceed 100, but a column without any is preferred.
    mostly = [column for column in candidates if over[column] <= (1 - _MIN_SHARE) * len(body)]
    possible = [column for column in mostly if not over[column]] or mostly
    if not possible:
        raise UnreadableLogError(
            f"{source}: line 1: no utilisation column; gpumon needs utilization.gpu, as in "
            f"{BEST_QUERY}"
        )
    unanswered = [column for column in free if _most(body, column, _UNANSWERED.fullmatch)]
    if unanswered and not percents and len({row[at] for row in body for at in possible}) == 1:
        raise UnreadableLogError(
            f"{source}: line 1: no header, no value in column {unanswered[0] + 1}, and column "
            f"{possible[0] + 1} never changes: name the column of the utilisation with --column "
            f"utilization.gpu=N. {WITH_MIG}"
        )
    is_pair = len(possible) == 2 and bool(percents) and _is_gpu_then_memory(body, *possible)
    if len(possible) == 1 or is_pair:
        return possible[0]
    raise UnreadableLogError(
        f"{source}: line 1: no header, and the utilisation could be any of the columns "
        f"{', '.join(str(column + 1) for column in possible)}; choose one: "
        "--column utilization.gpu=N"
    )


def _is_gpu_then_memory(body: Sequence[Sequence[str]], first: int, second: int) -> bool:
    """Return whether two adjacent columns are utilization.gpu and utilization.memory.

    Memory is seldom busier than the GPU; where it mostly is, the order must be another.
    """
    if second != first + 1:
        return False
    pairs = [
        [_number(row[at]) if _PERCENT_SEEN.fullmatch(row[at]) else 0.0 for at in (first, second)]
        for row in body
    ]
    return sum(one > other for one, other in pairs) >= sum(one < other for one, other in pairs)


def _number(cell: str) -> float:
    return float(cell.rstrip(" %").replace(",", "."))


def _is_percent_column(body: Sequence[Sequence[str]], column: int) -> bool:
    seen = any(_PERCENT_SEEN.fullmatch(row[column]) for row in body)
    return seen and _most(body, column, _PERCENT.fullmatch)


def _rows_over_100(body: Sequence[Sequence[str]], column: int) -> int:
    cells = (row[column] for row in body)
    return sum(_number(cell) > 100 for cell in cells if _NUMBER_SEEN.fullmatch(cell))


def _is_wall_stamp(cell: str) -> bool:
    if len(cell) > 40:
        return False
    parser = parser_for(cell)
    return isinstance(parser, WrittenStamps) or (parser is not None and parser.clock.is_wall)


def _most(body: Sequence[Sequence[str]], column: int, fits: Callable[[str], object]) -> bool:
    return sum(1 for row in body if fits(row[column])) >= _MIN_SHARE * len(body) > 0

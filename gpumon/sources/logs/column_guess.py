"""Which column says what, in a log without a header: by the shape of its cells, or not at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.columns import Column, ColumnLayout, chosen_columns
from gpumon.sources.logs.stamps import parser_for

_PERCENT: Final = re.compile(r"[-+]?\d+(\.\d+)?\s*%|\[[^\]]*\]|N/A")
_PERCENT_SEEN: Final = re.compile(r"\d+(\.\d+)?\s*%")
_BARE_NUMBER: Final = re.compile(r"\d+(\.\d+)?")
_UUID: Final = re.compile(r"(GPU|MIG)-[0-9a-fA-F-]{4,}")
_BUS_ID: Final = re.compile(r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d")
_MODEL: Final = re.compile(r".*(NVIDIA|Tesla|GeForce|Quadro|RTX|GTX|TITAN).*")
_SAMPLED_ROWS: Final = 512
_MIN_SHARE: Final = 0.8
"""Share of the rows whose cell must have a column's shape."""


def guess_layout(
    rows: Sequence[Sequence[str]], chosen: Mapping[str, int], source: str
) -> tuple[ColumnLayout, str]:
    """The layout of a log without a header, and a sentence that says what was guessed.

    Args:
        rows: The first rows of the log, split into cells.
        chosen: What the user said: column name to position, from 0.
        source: The log's name, for the sentences.

    Raises:
        UnreadableLogError: More than one column could be the utilisation, or none could.
        UsageError: The user named a column that is not there.
    """
    width = _usual_width(rows, source)
    body = [[cell.strip() for cell in row] for row in rows[:_SAMPLED_ROWS] if len(row) == width]
    positions = _by_shape(body, width)
    positions.update(chosen_columns(chosen, width))
    if Column.UTILIZATION not in positions:
        taken = set(positions.values())
        free = [column for column in range(width) if column not in taken]
        positions[Column.UTILIZATION] = _utilization_among(body, free, source)
    said = ", ".join(
        f"column {position + 1} as {column.value}"
        for column, position in sorted(positions.items(), key=lambda item: item[1])
    )
    note = f"The log has no header: took {said}. Say --column NAME=N if that is wrong."
    return ColumnLayout(width=width, positions=positions), note


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
    return positions


def _utilization_among(body: Sequence[Sequence[str]], free: Sequence[int], source: str) -> int:
    percents = [column for column in free if _is_percent_column(body, column)]
    if len(percents) == 1:
        return percents[0]
    if len(percents) == 2 and _is_gpu_then_memory(body, *percents):
        return percents[0]
    numbers = [column for column in free if _most(body, column, _BARE_NUMBER.fullmatch)]
    if not percents and len(free) == 1 and numbers and _within_percent(body, numbers[0]):
        return numbers[0]
    if not percents and not numbers:
        raise UnreadableLogError(
            f"{source}: line 1: no utilisation column; gpumon needs utilization.gpu, as in "
            "`nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1`"
        )
    candidates = ", ".join(str(column + 1) for column in percents or numbers)
    raise UnreadableLogError(
        f"{source}: line 1: no header, and the utilisation could be any of the columns "
        f"{candidates}; say which: --column utilization.gpu={(percents or numbers)[0] + 1}"
    )


def _is_gpu_then_memory(body: Sequence[Sequence[str]], first: int, second: int) -> bool:
    """Whether two neighbours are utilization.gpu and utilization.memory, in the usual order.

    Memory is seldom busier than the GPU; where it mostly is, the order must be another.
    """
    if second != first + 1:
        return False
    pairs = [(_percent(row[first]), _percent(row[second])) for row in body]
    return sum(one > other for one, other in pairs) >= sum(one < other for one, other in pairs)


def _percent(cell: str) -> float:
    found = _PERCENT_SEEN.fullmatch(cell)
    return float(cell.rstrip(" %")) if found else 0.0


def _is_percent_column(body: Sequence[Sequence[str]], column: int) -> bool:
    seen = any(_PERCENT_SEEN.fullmatch(row[column]) for row in body)
    return seen and _most(body, column, _PERCENT.fullmatch)


def _within_percent(body: Sequence[Sequence[str]], column: int) -> bool:
    return _most(body, column, lambda cell: _BARE_NUMBER.fullmatch(cell) and float(cell) <= 100.0)


def _is_wall_stamp(cell: str) -> bool:
    if len(cell) > 40:
        return False
    parser = parser_for(cell)
    return parser is not None and parser.clock.is_wall


def _most(body: Sequence[Sequence[str]], column: int, fits: Callable[[str], object]) -> bool:
    return sum(1 for row in body if fits(row[column])) >= _MIN_SHARE * len(body) > 0

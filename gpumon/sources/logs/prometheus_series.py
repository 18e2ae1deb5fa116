"""What the objects of a Prometheus answer say: values of a series, or that there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.json_documents import Document, JsonDocuments
from gpumon.sources.logs.table.skipped_lines import Refusal, SkippedLines

VALUES: Final = "values"
"""The key of the list of pairs, of which one series may have millions."""
_END_OF_TIME_S: Final = 9e9
"""The year 2255: nanoseconds up to there are a number of 64 bits."""
_LONGEST: Final = 300
_ADVICE: Final = (
    "ask for a range, such as `curl 'http://HOST:9090/api/v1/query_range?query="
    "DCGM_FI_DEV_GPU_UTIL&start=...&end=...&step=1'`"
)


class SeriesPart(NamedTuple):
    """Some values of one series, in the order of the answer.

    Attributes:
        labels: Of the series; the same object in all its parts.
        pairs: Seconds since 1970, and the value as Prometheus writes it.
        number: Of the line they begin in.
    """

    labels: dict[str, str]
    pairs: list[tuple[float, str]]
    number: int


def series_parts(
    documents: JsonDocuments, *, name: str, skipped: SkippedLines
) -> Iterator[SeriesPart]:
    """Every series, part by part.

    Raises:
        UnreadableLogError: An answer that has no series over time, or a
            refusal of Prometheus; says what to ask.
    """
    for number, found in documents:
        values, labels = found.get(VALUES), found.get("metric")
        if not isinstance(values, list):
            _refuse(found, name)
            continue
        labels = labels if isinstance(labels, dict) else {}
        labels.update({key: str(value) for key, value in labels.items()})
        pairs = [pair for pair in values if _is_pair(pair)]
        for _ in range(len(values) - len(pairs)):
            skipped.add(Refusal.DAMAGED_JSON, number)
        if values:
            yield SeriesPart(labels, pairs, number)


def _is_pair(pair: object) -> bool:
    """Whether it is a moment and a text.

    >>> _is_pair([1700000000.5, "96"]), _is_pair([None, "96"]), _is_pair([1e11, "96"])
    (True, False, False)
    """
    if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str)):
        return False
    return type(pair[0]) in (int, float) and 0 <= pair[0] < _END_OF_TIME_S


def _refuse(found: Document, name: str) -> None:
    """Refuse an answer that says it is none, or none over time."""
    data = found.get("data", found)
    kind = data.get("resultType", "matrix") if isinstance(data, dict) else "matrix"
    error = found.get("error")
    if isinstance(error, str):
        raise UnreadableLogError(
            f"{name}: Prometheus refused the query: {error[:_LONGEST]}; {_ADVICE}"
        )
    if isinstance(found.get("value"), list) or kind != "matrix":
        what = "values of one moment" if kind == "matrix" else f"a {str(kind)[:_LONGEST]}"
        raise UnreadableLogError(f"{name}: Prometheus gave {what}, not series over time; {_ADVICE}")

"""Writes metric families in the two text formats of Prometheus.

Both have the same lines of series, and differ in the comments above a family. The text before a
number hardly ever changes and is remembered, so that a large exposition takes a fraction of the
time that ``prometheus_client`` needs. A test compares the bytes with its.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from gpumon.core.wording import label_text
from gpumon.outlets.metrics.metric_table import MetricKind, MetricSpec
from gpumon.outlets.metrics.metric_values import HistogramValue, Labels, Row

_TOTAL: Final = "_total"
_UNITS: Final = (
    "bytes_per_second", "seconds", "bytes", "joules", "watts", "celsius", "hertz", "ratio",
)  # fmt: skip
_GO_EXPONENT_FROM: Final = 1e6
"""Go writes numbers from here on with an exponent, Python only from 1e16 on."""
_MAX_GO_DIGITS: Final = 6
_MAX_SPARE_PREFIXES: Final = 64


class WrittenFamily(NamedTuple):
    """A family with at least one series.

    Attributes:
        plain_head: Its comments in the plain text format.
        open_head: Its comments in OpenMetrics.
        lines: Its series, in both.
    """

    plain_head: str
    open_head: str
    lines: str


def plain_text(families: Iterable[WrittenFamily]) -> bytes:
    """The families in the text format 0.0.4."""
    return "".join([text for family in families for text in (family[0], family[2])]).encode()


def openmetrics_text(families: Iterable[WrittenFamily]) -> bytes:
    """The families in OpenMetrics 1.0."""
    texts = [text for family in families for text in family[1:]]
    return "".join((*texts, "# EOF\n")).encode()


class FamilyWriter:
    """Writes one family again and again.

    Attributes:
        spec: The family.
        refused: Series of the last ``write`` that were left out, because an earlier one has the
            same labels.
    """

    def __init__(self, spec: MetricSpec) -> None:
        self.spec = spec
        self.refused = 0
        is_counter = spec.kind is MetricKind.COUNTER
        stem = spec.name.removesuffix(_TOTAL) if is_counter else spec.name
        unit = unit_of(spec.name)
        text = spec.help.replace("\\", r"\\").replace("\n", r"\n")
        quoted = text.replace('"', r"\"")
        self._plain_head = f"# HELP {spec.name} {text}\n# TYPE {spec.name} {spec.kind.value}\n"
        self._open_head = f"# HELP {stem} {quoted}\n# TYPE {stem} {spec.kind.value}\n"
        self._open_head += f"# UNIT {stem} {unit}\n" if unit else ""
        self._prefixes: dict[Labels, tuple[str, ...]] = {}
        self._rows: list[Row] | None = None
        self._written: WrittenFamily | None = None

    def write(self, rows: list[Row]) -> WrittenFamily | None:
        """The family with these series, the first of each label set; ``None``: there are none.

        Rows that equal those of the last call are not written again.

        Raises:
            ValueError: A row has too many or too few labels, or text in place of a number.
            TypeError: A row has something else in place of a number.
        """
        if rows == self._rows:
            return self._written
        self._rows, self.refused = None, 0
        lines: list[str] = []
        written: set[str] = set()
        prefixes = self._prefixes
        for labels, value in rows:
            number = value.total if isinstance(value, HistogramValue) else value
            # float() makes text in place of a number fail here, where only this family is lost.
            if number is None or not math.isfinite(number := float(number)):
                continue
            before = prefixes.get(labels)
            if before is None:
                before = prefixes[labels] = self._prefixes_of(labels)
            first = before[0]
            if first in written:
                self.refused += 1
                continue
            written.add(first)
            if isinstance(value, HistogramValue):
                lines += _histogram_lines(before, value)
            else:
                lines.append(f"{first}{go_number(number)}\n")
        if len(prefixes) > 2 * len(written) + _MAX_SPARE_PREFIXES:
            prefixes.clear()
        heads = self._plain_head, self._open_head
        self._written = WrittenFamily(*heads, "".join(lines)) if lines else None
        self._rows = rows
        return self._written

    def _prefixes_of(self, labels: Labels) -> tuple[str, ...]:
        spec = self.spec
        if len(labels) != len(spec.labels):
            raise ValueError(f"{len(labels)} label values for {spec.labels!r}")
        pairs = dict(zip(spec.labels, map(label_text, labels), strict=True))
        if spec.kind is not MetricKind.HISTOGRAM:
            return (_prefix(spec.name, pairs),)
        bounds = (*map(go_number, GAP_BUCKETS_SECONDS), "+Inf")
        buckets = [_prefix(f"{spec.name}_bucket", pairs | {"le": bound}) for bound in bounds]
        return (*buckets, *(_prefix(f"{spec.name}_{part}", pairs) for part in ("count", "sum")))


def unit_of(name: str) -> str:
    """The unit in a metric's name; empty: it has none.

    >>> unit_of("gpumon_gpu_busy_seconds_total"), unit_of("gpumon_samples_total")
    ('seconds', '')
    """
    stem = name.removesuffix(_TOTAL)
    return next((unit for unit in _UNITS if stem.endswith(f"_{unit}")), "")


def go_number(number: float) -> str:
    """A finite number as Go writes it.

    >>> go_number(0.1), go_number(1234567.0), go_number(1e16)
    ('0.1', '1.234567e+06', '1e+16')
    """
    text = repr(number)
    if number < _GO_EXPONENT_FROM or (dot := text.find(".")) <= _MAX_GO_DIGITS:
        return text
    return f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.") + f"e+{dot - 1:02d}"


def _histogram_lines(prefixes: tuple[str, ...], value: HistogramValue) -> list[str]:
    counts = (*value.bucket_counts, value.gap_count, value.gap_count)
    numbers = [*map(float, counts), value.total]
    return [
        f"{prefix}{go_number(number)}\n" for prefix, number in zip(prefixes, numbers, strict=True)
    ]


def _prefix(name: str, pairs: dict[str, str]) -> str:
    if not pairs:
        return f"{name} "
    shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(pairs.items()))
    return f"{name}{{{shown}}} "


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

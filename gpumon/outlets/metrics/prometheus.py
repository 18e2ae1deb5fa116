"""Exports ``/metrics``: each tick is rendered at most once in each format and encoding.

One broken reader, one label that is not UTF-8 or one ``None`` must not lose the scrape, and
Prometheus silently keeps the first of duplicate series. So each family is read on its own, every
label value goes through ``label_text``, and duplicates are dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.clock import Clock
from gpumon.core.state import MonitorState
from gpumon.outlets.metrics.exposition import (
    FamilyWriter,
    WrittenFamily,
    openmetrics_text,
    plain_text,
)
from gpumon.outlets.metrics.label_budget import LabelBudget
from gpumon.outlets.metrics.metric_table import METRICS, MetricSpec
from gpumon.outlets.metrics.metric_values import NOTHING_SELECTED, MetricView, Row
from gpumon.outlets.metrics.negotiation import prefers_gzip, prefers_openmetrics
from gpumon.outlets.metrics.process_metrics import PROCESS_METRICS, ProcessReader

_LOG = logging.getLogger(__name__)
_PLAIN_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_DROPPED: Final = "gpumon_label_sets_dropped_total"
_SUCCESS: Final = "gpumon_collector_success"
_PROCESS: Final = "process"
_GZIP_LEVEL: Final = 1
"""Higher levels take several times as long, to make a scrape a quarter smaller."""
_GZIP_FORMAT: Final = 31


class Exposition(NamedTuple):
    """A rendered tick.

    Attributes:
        is_gzip: Whether the body is compressed.
    """

    body: bytes
    content_type: str
    is_gzip: bool


class MetricsExporter:
    """Renders the newest tick for any number of scrapers, on their threads.

    Args:
        clock: Determines when a tick is stale.
        version: Of gpumon.
        metrics: The families.
        proc: procfs for ``process_*`` of this process; ``None``: none.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        version: str,
        metrics: Sequence[MetricSpec] = METRICS,
        proc: Path | None = None,
    ) -> None:
        self._clock = clock
        self._version = version
        self._budget = LabelBudget()
        self._newest = NOTHING_SELECTED
        self._scraped_at_ns: int | None = None
        self._families = _Families(metrics, None if proc is None else ProcessReader(proc))
        self._rendering = threading.Lock()
        self._rendered: _RenderedTick | None = None

    def publish(self, state: MonitorState) -> None:
        """Select the series of a new tick. Called by one thread only; never waits."""
        self._newest = self._budget.select(state, self._newest, self._scraped_at_ns)

    def render(self, accept: str | None = None, accept_encoding: str | None = None) -> Exposition:
        """All metrics, the same bytes for each scraper of a tick.

        Args:
            accept: The ``Accept`` field of the request.
            accept_encoding: Its ``Accept-Encoding`` field.
        """
        is_openmetrics, is_gzip = prefers_openmetrics(accept), prefers_gzip(accept_encoding)
        with self._rendering:
            newest = self._newest
            view = replace(newest, now_ns=self._clock.monotonic_ns(), version=self._version)
            rendered = self._rendered
            if rendered is None or not rendered.shows(newest, is_stale=view.stale):
                rendered = _RenderedTick(newest, view.stale, self._families.write(view))
                self._rendered = rendered
            body = rendered.body(is_openmetrics=is_openmetrics, is_gzip=is_gzip)
            if newest.state is not None:
                self._scraped_at_ns = newest.state.taken_at_ns
        return Exposition(body, _OPENMETRICS if is_openmetrics else _PLAIN_TEXT, is_gzip)


class _RenderedTick:
    """A tick as text, with the bodies that scrapers requested."""

    def __init__(
        self, newest: MetricView, is_stale: bool, families: Sequence[WrittenFamily]
    ) -> None:
        self._newest, self._is_stale, self._families = newest, is_stale, families
        self._bodies: dict[tuple[bool, bool], bytes] = {}

    def shows(self, newest: MetricView, *, is_stale: bool) -> bool:
        return self._newest is newest and self._is_stale is is_stale

    def body(self, *, is_openmetrics: bool, is_gzip: bool) -> bytes:
        found = self._bodies.get((is_openmetrics, is_gzip))
        if found is None:
            if is_gzip:
                found = _compressed(self.body(is_openmetrics=is_openmetrics, is_gzip=False))
            else:
                found = (openmetrics_text if is_openmetrics else plain_text)(self._families)
            self._bodies[is_openmetrics, is_gzip] = found
        return found


def _compressed(body: bytes) -> bytes:
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
    return packer.compress(body) + packer.flush()


class _Families:
    """Reads and writes all families; one that fails is left out."""

    def __init__(self, metrics: Sequence[MetricSpec], process: ProcessReader | None) -> None:
        self._process = process
        self._process_writers = [FamilyWriter(spec) for spec in PROCESS_METRICS]
        self._writers = [FamilyWriter(spec) for spec in metrics]
        self._warned: set[str] = set()

    def write(self, view: MetricView) -> list[WrittenFamily]:
        """The families that have series, in the order of the table."""
        succeeded: dict[str, bool] = {}
        written = [] if self._process is None else self._write_process(self._process, succeeded)
        dropped = Counter(dict(view.dropped))
        for writer in self._writers:
            spec, rows = writer.spec, list[Row]()
            if spec.read is not None:
                with self._survives(spec.group, spec.name, succeeded):
                    rows = [*spec.read(view)]
            if spec.name == _DROPPED:
                rows = [((family,), count) for family, count in dropped.items()]
            elif spec.name == _SUCCESS:
                # The last family, so that every failed group is known.
                rows += [((f"metrics_{group}",), ok) for group, ok in succeeded.items()]
            with self._survives(spec.group, spec.name, succeeded):
                written.append(writer.write(rows))
                if writer.refused:
                    dropped[spec.name] += writer.refused
        return [family for family in written if family is not None]

    def _write_process(
        self, process: ProcessReader, succeeded: dict[str, bool]
    ) -> list[WrittenFamily | None]:
        values: list[float] = []
        with self._survives(_PROCESS, "process_*", succeeded):
            values = [*process.read()]
        return [
            writer.write([((), value)])
            for writer, value in zip(self._process_writers, values, strict=False)
        ]

    @contextlib.contextmanager
    def _survives(self, group: str, name: str, succeeded: dict[str, bool]) -> Iterator[None]:
        """Report a failure inside as one of this group, and go on without this family."""
        succeeded.setdefault(group, True)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - one broken family must not lose the others
            succeeded[group] = False
            if name not in self._warned:
                self._warned.add(name)
                _LOG.warning(
                    "%s is left out of /metrics: %s: %s", name, type(error).__name__, error
                )

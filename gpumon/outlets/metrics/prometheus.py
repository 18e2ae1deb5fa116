"""Exports ``/metrics`` with prometheus_client, which only this file uses.

With client_python, one broken collector, one label that is not UTF-8 or one ``None`` becomes an
HTTP 500 without any series, and duplicate series pass: Prometheus silently keeps the first. So each
family is read on its own, every label value goes through ``label_text``, and duplicates are dropped
here.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gpumon.core.clock import Clock
from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from gpumon.core.state import MonitorState
from gpumon.core.wording import label_text
from gpumon.outlets.metrics.metric_table import METRICS, MetricKind, MetricSpec
from gpumon.outlets.metrics.metric_values import HistogramValue, LabelBudget, MetricView, Row

_LOG = logging.getLogger(__name__)
_PLAIN_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_DROPPED = "gpumon_label_sets_dropped_total"
_SUCCESS = "gpumon_collector_success"
_GAP_BOUNDS = (*map(floatToGoString, GAP_BUCKETS_SECONDS), "+Inf")
_FAMILIES: Mapping[MetricKind, Callable[..., Any]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}

_Series: TypeAlias = dict[tuple[str, ...], tuple[Any, ...]]
"""Arguments of ``add_metric`` by label values."""


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
        # Created once: it remembers the boot time, so that setting the clock does not change the
        # start time.
        self._process = None if proc is None else ProcessCollector(proc=str(proc), registry=None)
        self._clock = clock
        self._version = version
        self._metrics = metrics
        self._budget = LabelBudget()
        self._newest = MetricView()
        self._warned: set[str] = set()

    def publish(self, state: MonitorState) -> None:
        """Select the series of a new tick. Called by one thread only."""
        self._newest = self._budget.select(state)

    def render(self, accept: str | None = None) -> tuple[bytes, str]:
        """All metrics as a body and its content type, by the scraper's ``Accept`` header."""
        now_ns = self._clock.monotonic_ns()
        view = replace(self._newest, now_ns=now_ns, version=self._version)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(view, self._metrics, self._process, self._warn_once))
        # client_python fails on versions such as "abc" and repeats them unchecked.
        if "application/openmetrics-text" in (accept or ""):
            body = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
            return body, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(registry), _PLAIN_TEXT

    def _warn_once(self, name: str, error: Exception) -> None:
        if name not in self._warned:
            self._warned.add(name)
            _LOG.warning("%s is left out of /metrics: %s: %s", name, type(error).__name__, error)


class _Scrape(Collector):
    def __init__(
        self,
        view: MetricView,
        metrics: Sequence[MetricSpec],
        process: ProcessCollector | None,
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self._view = view
        self._metrics = metrics
        self._process = process
        self._on_error = on_error
        self._refused: Counter[str] = Counter()
        self._succeeded: dict[str, bool] = {}

    def collect(self) -> Iterator[Metric]:
        if self._process is not None:
            yield from self._of_process(self._process)
        for spec in self._metrics:
            series = self._read(spec)
            if spec.name == _DROPPED:
                series = {(family,): (float(count),) for family, count in self._dropped().items()}
            elif spec.name == _SUCCESS:
                # The last family, so that every failed group is known.
                groups = self._succeeded.items()
                series |= {(f"metrics_{group}",): (float(ok),) for group, ok in groups}
            if series:
                yield _family(spec, series)

    def _of_process(self, process: ProcessCollector) -> list[Metric]:
        self._succeeded["process"] = True
        try:
            return [*process.collect()]
        except Exception as error:  # noqa: BLE001 - it reads files; its failure must not lose GPU metrics
            self._succeeded["process"] = False
            self._on_error("process_*", error)
            return []

    def _read(self, spec: MetricSpec) -> _Series:
        self._succeeded.setdefault(spec.group, True)
        if spec.read is None:
            return {}
        try:
            return self._checked(spec, spec.read(self._view))
        except Exception as error:  # noqa: BLE001 - one broken family must not lose the others
            self._succeeded[spec.group] = False
            self._on_error(spec.name, error)
            return {}

    def _checked(self, spec: MetricSpec, rows: Iterable[Row]) -> _Series:
        series: _Series = {}
        for raw_labels, value in rows:
            numbers = _numbers(value)
            if numbers is None:
                continue
            labels = tuple(map(label_text, raw_labels))
            if len(labels) != len(spec.labels):
                raise ValueError(f"{len(labels)} label values for {spec.labels!r}")
            if labels in series:
                self._refused[spec.name] += 1
            else:
                series[labels] = numbers
        return series

    def _dropped(self) -> dict[str, int]:
        counted = Counter(dict(self._view.dropped))
        counted.update(self._refused)
        return counted


def _numbers(value: float | HistogramValue | None) -> tuple[Any, ...] | None:
    """Arguments of ``add_metric``; ``None``: no answer."""
    if isinstance(value, HistogramValue):
        buckets = zip(_GAP_BOUNDS, (*value.bucket_counts, value.gap_count), strict=True)
        return [*buckets], value.total
    # float() makes text in a number's place fail here, where only this family is lost.
    return None if value is None or not math.isfinite(number := float(value)) else (number,)


def _family(spec: MetricSpec, series: _Series) -> Metric:
    family: Metric = _FAMILIES[spec.kind](spec.name, spec.help, labels=spec.labels)
    for labels, numbers in series.items():
        family.add_metric(labels, *numbers)  # type: ignore[attr-defined]
    return family

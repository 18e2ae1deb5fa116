"""Both text formats: the bytes are those that prometheus_client writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_plain_text
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gpumon.core.phase import CAUSES, PHASES
from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from gpumon.core.state import MonitorState
from gpumon.core.wording import label_text
from gpumon.outlets.metrics.exposition import (
    FamilyWriter,
    go_number,
    openmetrics_text,
    plain_text,
    unit_of,
)
from gpumon.outlets.metrics.label_budget import LabelBudget
from gpumon.outlets.metrics.metric_table import METRICS, MetricKind, MetricSpec
from gpumon.outlets.metrics.metric_values import HistogramValue, MetricView, Row
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders.state import (
    S,
    StoppedClock,
    detailed_gpu,
    device,
    healthy_gpu,
    monitor_state,
    run,
    starved_gpu,
)

FAMILIES: dict[MetricKind, Callable[..., Any]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}
BOUNDS = (*map(floatToGoString, GAP_BUCKETS_SECONDS), "+Inf")


class Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = [*families]

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def written_by_client(families: Iterable[Metric]) -> tuple[bytes, bytes]:
    """Plain text and OpenMetrics as prometheus_client writes them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(families))
    return generate_latest(registry), openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]


def family_of(spec: MetricSpec, rows: Iterable[Row]) -> Metric | None:
    """The family of prometheus_client with the first row of each label set."""
    family: Any = FAMILIES[spec.kind](
        spec.name, spec.help, labels=spec.labels, unit=unit_of(spec.name)
    )
    known = set()
    for raw, value in rows:
        labels = tuple(map(label_text, raw))
        if isinstance(value, HistogramValue):
            numbers: tuple[Any, ...] = (
                [*zip(BOUNDS, (*value.bucket_counts, value.gap_count), strict=True)],
                value.total,
            )
        elif value is None or not math.isfinite(value):
            continue
        else:
            numbers = (value,)
        if labels not in known:
            known.add(labels)
            family.add_metric(labels, *numbers)
    return family if known else None


def written(specs_and_rows: Iterable[tuple[MetricSpec, list[Row]]]) -> tuple[bytes, bytes]:
    families = [FamilyWriter(spec).write(rows) for spec, rows in specs_and_rows]
    some = [family for family in families if family is not None]
    return plain_text(some), openmetrics_text(some)


def view_of(state: MonitorState) -> MetricView:
    return replace(LabelBudget().select(state), now_ns=state.taken_at_ns, version="0.1.0")


def rows_of(view: MetricView) -> list[tuple[MetricSpec, list[Row]]]:
    return [(spec, [*spec.read(view)]) for spec in METRICS if spec.read is not None]


GOLDEN_STATE = monitor_state(
    runs=(run(shares={"GPU-a": 0.375, "GPU-b": 0.625}, ratio_changes=2),),
    gpus=(detailed_gpu(), healthy_gpu()),
)
STATES = {
    "golden": GOLDEN_STATE,
    "nothing known": monitor_state(gpus=(), runs=(), collectors=()),
    "a lost GPU": monitor_state(gpus=(detailed_gpu(present=False, error="GPU is lost"),)),
    "a MIG instance": monitor_state(
        gpus=(healthy_gpu(device=device(0, "MIG-a", parent_uuid="GPU-a", mig_index=1)),)
    ),
    "hostile names": monitor_state(
        gpus=(starved_gpu(device=device(0, 'GPU-"\\\n', name="\\n\udcff\u202e{},=")),),
        runs=(run('q"u\\o\nte', job="\0", framework="x" * 300),),
    ),
    "large numbers": monitor_state(samples_total=2**63, missed_total=1_000_000),
}


class TestAScrape:
    @pytest.mark.parametrize("state", STATES.values(), ids=STATES)
    def test_has_the_bytes_of_prometheus_client(self, state: MonitorState) -> None:
        rows = rows_of(view_of(state))

        families = [family_of(spec, some) for spec, some in rows]
        expected = written_by_client(family for family in families if family is not None)
        assert written(rows) == expected

    @pytest.mark.parametrize("state", STATES.values(), ids=STATES)
    def test_is_the_same_when_it_was_parsed_and_written_again(self, state: MonitorState) -> None:
        exporter = MetricsExporter(clock=StoppedClock(), version="0.1.0")
        exporter.publish(state)
        plain = exporter.render().body
        of_openmetrics = exporter.render("application/openmetrics-text").body

        again, _ = written_by_client(parse_plain_text(plain.decode()))
        parsed = parse_openmetrics(of_openmetrics.decode())  # type: ignore[no-untyped-call]
        _, openmetrics_again = written_by_client(parsed)
        assert (again, openmetrics_again) == (plain, of_openmetrics)

    def test_names_its_units_and_no_creation_time_in_openmetrics(self) -> None:
        exporter = MetricsExporter(clock=StoppedClock(), version="0.1.0")
        exporter.publish(GOLDEN_STATE)
        text = exporter.render("application/openmetrics-text").body.decode()

        assert "# UNIT gpumon_gpu_busy_seconds seconds\n" in text
        assert "# UNIT gpumon_gpu_pcie_received_bytes_per_second bytes_per_second\n" in text
        assert "# UNIT gpumon_samples " not in text
        assert "_created" not in text
        assert text.endswith("\n# EOF\n")


outside_text = st.text(st.characters(), max_size=12)
numbers = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.floats(1e5, 1e17),
    st.integers(0, 10**18).map(float),
)
histograms = st.builds(
    HistogramValue,
    st.tuples(*[st.integers(0, 10**9)] * len(GAP_BUCKETS_SECONDS)),
    st.integers(0, 10**9),
    st.floats(0.0, 1e12),
)


def spec_of(kind: MetricKind, text: str) -> MetricSpec:
    name = "gpumon_made_up_seconds" + ("_total" if kind is MetricKind.COUNTER else "")
    return MetricSpec(
        name=name, kind=kind, help=text, labels=("uuid", "a", "zone"), group="g", read=None
    )


class TestLaws:
    @settings(max_examples=300, deadline=None)
    @given(data=st.data(), kind=st.sampled_from(MetricKind), text=outside_text)
    def test_any_family_has_the_bytes_of_prometheus_client(
        self, data: st.DataObject, kind: MetricKind, text: str
    ) -> None:
        values = histograms if kind is MetricKind.HISTOGRAM else numbers
        labels = st.tuples(outside_text, st.none() | st.integers(), st.sampled_from(["b", "c"]))
        rows: list[Row] = data.draw(st.lists(st.tuples(labels, values), max_size=8))
        spec = spec_of(kind, text.encode(errors="replace").decode())

        family = family_of(spec, rows)
        expected = written_by_client([] if family is None else [family])
        assert written([(spec, rows)]) == expected

    @settings(max_examples=60, deadline=None)
    @given(
        ticks=st.lists(
            st.tuples(
                st.lists(outside_text, max_size=3),
                st.dictionaries(st.sampled_from(CAUSES), st.integers(0, 10**15)),
                st.dictionaries(st.sampled_from(PHASES), st.integers(0, 10**15)),
                st.floats(0.0, 1e9),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def test_ticks_after_one_another_have_them_too(
        self, ticks: list[tuple[list[str], dict[Any, int], dict[Any, int], float]]
    ) -> None:
        writers = {spec.name: FamilyWriter(spec) for spec in METRICS}
        for names, idle_ns, phase_ns, power in ticks:
            gpu = starved_gpu()
            assert gpu.latest is not None
            changed = gpu._replace(
                totals=gpu.totals._replace(idle_ns=idle_ns),
                latest=gpu.latest._replace(power_watts=power),
            )
            gpus = [changed._replace(device=device(0, name)) for name in names]
            runs = [run(name, phase_ns=phase_ns, wall_ns=S) for name in names]
            rows = rows_of(view_of(monitor_state(gpus=tuple(gpus), runs=tuple(runs))))

            found = [writers[spec.name].write(some) for spec, some in rows]
            ours = [family for family in found if family is not None]
            families = [family_of(spec, some) for spec, some in rows]
            expected = written_by_client(family for family in families if family is not None)
            assert (plain_text(ours), openmetrics_text(ours)) == expected

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_any_number_is_written_as_go_does(self, number: float) -> None:
        expected = floatToGoString(number)  # type: ignore[no-untyped-call]
        assert go_number(number) == expected


class TestAFamily:
    SPEC = spec_of(MetricKind.GAUGE, "Made up.")

    def test_forgets_labels_that_are_gone(self) -> None:
        writer = FamilyWriter(self.SPEC)
        for tick in range(50):
            writer.write([((f"run-{tick}-{number}", "", ""), 1.0) for number in range(64)])

        assert len(writer._prefixes) < 300

    def test_that_did_not_change_is_not_written_again(self) -> None:
        writer = FamilyWriter(self.SPEC)
        rows: list[Row] = [(("a", "b", "c"), 1.0), (("a", "b", "c"), 2.0)]

        first = writer.write(rows)
        assert writer.write([*rows]) is first
        assert writer.refused == 1
        changed = writer.write([(("a", "b", "c"), 3.0)])
        assert changed is not None
        assert changed.lines.endswith(" 3.0\n")

    def test_counts_what_it_refuses(self) -> None:
        writer = FamilyWriter(self.SPEC)
        twice: list[Row] = [(("a", "b", "c"), 1.0), (("a", "b", "c"), 2.0), (("a\n", "", ""), None)]

        assert writer.write(twice) is not None
        assert writer.refused == 1
        assert writer.write(twice[:1]) is not None
        assert writer.refused == 0

    @pytest.mark.parametrize(
        "row", [(("a",), 1.0), (("a", "b", "c"), "much"), (("a", "b", "c"), [1])]
    )
    def test_with_a_row_that_does_not_fit_is_not_written(self, row: Any) -> None:
        with pytest.raises((ValueError, TypeError)):
            FamilyWriter(self.SPEC).write([row])

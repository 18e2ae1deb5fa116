"""Tests of /metrics: known values are exported, unknown ones have no series."""

from __future__ import annotations

import gzip
import os
import re
import resource
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.state import CollectorState, MonitorState
from gpumon.outlets.metrics.metric_values import MetricView, Reader, Row
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders.state import (
    HEALTHY_UUID,
    STARVED_UUID,
    S,
    StoppedClock,
    detailed_gpu,
    healthy_gpu,
    monitor_state,
    run,
    starved_gpu,
)
from tests.golden_files import GOLDEN, verify_golden
from tests.needs import needed
from tests.serving import read_otherwise

SHARES = {STARVED_UUID: 0.375, HEALTHY_UUID: 0.625}
SHARED = run(gpu_uuids=(*SHARES,), shares=SHARES, ratio_changes=2)
COMPLETE = monitor_state(runs=(SHARED,), gpus=(detailed_gpu(), healthy_gpu()))
METRICS = GOLDEN / "metrics.txt"
SILENCE = RunSilence(since_ns=1, phase=TrainingPhase.INPUT_WAIT, silent_ns=40 * S)
HANGS = SILENCE._replace(hanging_from_ns=31 * S)


def exporter(
    *states: MonitorState,
    clock: StoppedClock | None = None,
    readers: Mapping[str, Reader] = MappingProxyType({}),
) -> MetricsExporter:
    made = MetricsExporter(
        clock=clock or StoppedClock(), version="0.1.0", metrics=read_otherwise(**readers)
    )
    for state in states:
        made.publish(state)
        made.render()  # else causes are 0, as in their first scrape
        made.publish(state)
    return made


def text_of(state: MonitorState, **readers: Reader) -> str:
    return exporter(state, readers=readers).render().body.decode()


def series(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Values of one family by label values, in the order of label names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


class TestAScrape:
    def test_is_the_golden_file(self) -> None:
        scrape = exporter(COMPLETE).render()

        verify_golden("metrics.txt", scrape.body.decode())
        assert scrape.content_type == "text/plain; version=0.0.4; charset=utf-8"

    @pytest.mark.prometheus
    def test_is_valid_for_promtool_and_in_openmetrics(self) -> None:
        made = MetricsExporter(clock=StoppedClock(), version="0.1.0", proc=Path("/proc"))
        made.publish(COMPLETE)
        openmetrics = made.render(
            "application/openmetrics-text;version=9.9;x=\r\nA: b,text/plain;version=0.0.4;q=0.3"
        )
        command = [needed("promtool", "prometheus"), "check", "metrics"]

        done = subprocess.run(command, input=made.render().body, capture_output=True)

        assert (done.returncode, done.stdout + done.stderr) == (0, b"")
        content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert openmetrics.content_type == content_type
        families = list(parse_openmetrics(openmetrics.body.decode()))  # type: ignore[no-untyped-call]
        assert len(families) > 40
        assert sum(family.name.startswith("process_") for family in families) == 6

    def test_before_the_first_tick_has_version_and_success(self) -> None:
        text = exporter().render().body.decode()

        assert series(text, "gpumon_build_info") == {("0.1.0",): 1.0}
        assert set(series(text, "gpumon_collector_success").values()) == {1.0}
        assert "gpumon_gpu_" not in text

    @pytest.mark.parametrize(
        "accept", ["", "*/*", "text/plain;version=abc", "\r\n Set-Cookie: a=b"]
    )
    def test_accepts_any_accept_header(self, accept: str) -> None:
        scrape = exporter(COMPLETE).render(accept)

        assert scrape.body == METRICS.read_bytes()
        assert scrape.content_type == "text/plain; version=0.0.4; charset=utf-8"


OPENMETRICS = "application/openmetrics-text"


class TestATick:
    READ = "gpumon_gpu_power_watts"

    def counting(self) -> tuple[MetricsExporter, list[MetricView]]:
        """An exporter, and the views that one family was read from."""
        read: list[MetricView] = []

        def reader(view: MetricView) -> Iterable[Row]:
            read.append(view)
            return [(("GPU-x",), len(read))]

        clock = StoppedClock()
        made = MetricsExporter(
            clock=clock, version="0.1.0", metrics=read_otherwise(**{self.READ: reader})
        )
        return made, read

    def test_is_read_once_for_all_scrapers_formats_and_encodings(self) -> None:
        made, read = self.counting()
        made.publish(monitor_state())

        for accept in (None, OPENMETRICS):
            for encoding in (None, "gzip"):
                bodies = [made.render(accept, encoding).body for _ in range(3)]
                assert bodies[0] is bodies[1] is bodies[2]
        assert len(read) == 1

    def test_is_rendered_when_it_is_scraped_and_never_ahead(self) -> None:
        made, read = self.counting()
        for _ in range(100):
            made.publish(monitor_state())
        assert read == []

        made.render()
        for _ in range(100):
            made.publish(monitor_state())
        assert len(read) == 1

    def test_that_is_new_or_too_old_is_read_again(self) -> None:
        clock = StoppedClock()
        made = exporter(monitor_state(), clock=clock)
        first = made.render().body
        made.publish(monitor_state(samples_total=101))
        second = made.render().body
        clock.now_ns += 60 * S
        third = made.render().body

        assert b"gpumon_samples_total 100.0" in first
        assert b"gpumon_samples_total 101.0" in second
        assert b"gpumon_gpu_power_watts" not in third
        assert made.render().body is third

    @pytest.mark.parametrize("accept", [None, OPENMETRICS])
    def test_is_compressed_for_who_accepts_it(self, accept: str | None) -> None:
        made = exporter(COMPLETE)
        packed, plain = made.render(accept, "gzip, deflate"), made.render(accept, "gzip;q=0")

        assert (packed.is_gzip, plain.is_gzip) == (True, False)
        assert packed.content_type == plain.content_type
        assert gzip.decompress(packed.body) == plain.body
        assert len(packed.body) < len(plain.body) / 4


class TestAGpuWithoutAnAnswer:
    def test_that_is_lost_keeps_only_its_errors_and_the_time_of_its_last_sample(self) -> None:
        lost = detailed_gpu(present=False, error="GPU is lost")
        text = text_of(monitor_state(gpus=(lost, healthy_gpu())))

        with_it = {line.partition("{")[0] for line in text.splitlines() if STARVED_UUID in line}
        assert with_it == {"gpumon_last_sample_timestamp_seconds", "gpumon_gpu_xid_errors_total"}

    def test_because_the_driver_hangs_loses_its_gauges_and_keeps_its_counters(self) -> None:
        text = text_of(monitor_state(gpus=(starved_gpu(present=False),)))

        assert series(text, "gpumon_gpu_starved_seconds_total") == {(STARVED_UUID,): 30.0}
        assert series(text, "gpumon_gpu_idle_gap_seconds_count") == {(STARVED_UUID,): 21.0}
        for gauge in ("info", "starved", "utilization_ratio", "memory_capacity_bytes"):
            assert series(text, f"gpumon_gpu_{gauge}") == {}


class TestAStaleState:
    def test_loses_present_values_and_keeps_counters(self) -> None:
        clock = StoppedClock()
        made = exporter(monitor_state(runs=(SHARED,)), clock=clock)

        clock.now_ns += 2 * S
        young = made.render().body.decode()
        clock.now_ns += S
        old = made.render().body.decode()

        gauges = [
            f"gpumon_{name}"
            for name in ("gpu_utilization_ratio", "training_phase", "training_hanging",
                         "training_share_ratio")
        ]  # fmt: skip
        assert [gauge for gauge in gauges if not series(young, gauge)] == []
        assert [gauge for gauge in gauges if series(old, gauge)] == []
        assert len(series(old, "gpumon_gpu_busy_seconds_total")) == 2
        assert len(series(old, "gpumon_training_steps_total")) == 1
        assert series(old, "gpumon_training_ratio_changes_total") == {("resnet",): 2.0}


class TestARun:
    def test_that_ended_is_in_no_phase_and_keeps_its_totals(self) -> None:
        text = text_of(monitor_state(runs=(run(alive=False, phase=None),)))

        assert set(series(text, "gpumon_training_phase").values()) == {0.0}
        assert series(text, "gpumon_training_steps_total") == {("resnet",): 1234.0}

    def test_that_reports_no_shares_has_no_series_of_them(self) -> None:
        text = text_of(monitor_state())

        assert "gpumon_training_share_ratio" not in text
        assert "gpumon_training_ratio_changes_total" not in text

    @pytest.mark.parametrize(
        ("state", "is_hanging"),
        [
            ({"silence": HANGS}, True),
            ({"silence": HANGS._replace(is_first_batch=True)}, True),
            ({"silence": SILENCE}, False),
            ({"silence": None, "suspended_since_ns": 7 * S}, False),
            ({"silence": None, "alive": False}, False),
        ],
        ids=["silent for too long", "too long without a first batch", "silent", "suspended",
             "ended"],
    )  # fmt: skip
    def test_hangs_only_if_it_is_silent_for_too_long(
        self, state: dict[str, Any], is_hanging: bool
    ) -> None:
        text = text_of(monitor_state(runs=(run("a", **state), run("b", pid=4243))))

        assert series(text, "gpumon_training_hanging") == {("a",): is_hanging, ("b",): 0.0}


def raising(view: MetricView) -> Iterable[Row]:
    yield ("GPU-x",), 1.0
    raise RuntimeError("broken reader")


def misfitting(view: MetricView) -> Iterable[Row]:
    return [(("one", "too many"), 1.0)]


def wordy(view: MetricView) -> Iterable[Row]:
    return [(("GPU-x",), "a lot")]  # type: ignore[list-item]


class TestABrokenReader:
    @pytest.mark.parametrize("broken", [raising, misfitting, wordy])
    def test_loses_only_its_own_family(
        self, broken: Reader, caplog: pytest.LogCaptureFixture
    ) -> None:
        name = "gpumon_gpu_power_watts"
        made = exporter(monitor_state(), readers={name: broken})

        first, second = made.render().body.decode(), made.render().body.decode()

        whole = text_of(monitor_state())
        missing = set(whole.splitlines()) - set(first.splitlines())
        success = 'gpumon_collector_success{collector="metrics_gpu_now"}'
        assert {line for line in missing if name not in line} == {f"{success} 1.0"}
        assert f"{success} 0.0" in first.splitlines()
        assert first == second
        assert len(caplog.records) == 1


def test_duplicates_are_dropped_and_counted_by_family() -> None:
    def twice(view: MetricView) -> Iterable[Row]:
        return [(("GPU-x",), 1.0), (("GPU-x",), 2.0)]

    text = text_of(monitor_state(), gpumon_gpu_power_watts=twice)

    assert series(text, "gpumon_gpu_power_watts") == {("GPU-x",): 1.0}
    dropped = series(text, "gpumon_label_sets_dropped_total")
    assert dropped[("gpumon_gpu_power_watts",)] == 1.0


PROCESS_SERIES = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)


class TestProcessSeries:
    def test_are_those_of_prometheus_client(self, tmp_path: Path) -> None:
        registry = CollectorRegistry()
        proc = self.made_up(tmp_path)
        ProcessCollector(proc=str(proc), registry=registry)

        expected = generate_latest(registry).decode()
        assert self.scraped(proc).startswith(expected)
        assert expected.count("# HELP process_") == len(PROCESS_SERIES)

    def scraped(self, proc: Path | None) -> str:
        made = MetricsExporter(clock=StoppedClock(), version="0.1.0", proc=proc)
        made.publish(monitor_state())
        return made.render().body.decode()

    def made_up(self, folder: Path, limits: str = "Max open files 1024 4096 files\n") -> Path:
        """A procfs of a process that started 50 s after the boot at 1,000 s."""
        fields = ["S", *["0"] * 10, "250", "50", *["0"] * 6, "5000", "4096000", "100"]
        assert os.sysconf("SC_CLK_TCK") == 100
        (folder / "self" / "fd").mkdir(parents=True)
        (folder / "stat").write_text("cpu 1 2 3\nbtime 1000\n")
        (folder / "self" / "stat").write_text(" ".join(["7", "(a) name)", *fields]))
        (folder / "self" / "limits").write_text(limits)
        for number in range(3):
            (folder / "self" / "fd" / str(number)).touch()
        return folder

    def test_do_not_change_other_series(self, tmp_path: Path) -> None:
        text = self.scraped(self.made_up(tmp_path))

        pages = resource.getpagesize()
        found = [series(text, name) for name in PROCESS_SERIES]
        assert found == [
            {(): number} for number in (3.0, 1024.0, 3.0, 100.0 * pages, 1050.0, 4096e3)
        ]
        is_own = re.compile(r"(# (HELP|TYPE) )?process_").match
        without = [line for line in text.splitlines() if not is_own(line)]
        success = 'gpumon_collector_success{collector="metrics_process"} 1.0'
        assert set(self.scraped(None).splitlines()) == {*without} - {success}
        assert "\nprocess_" not in self.scraped(tmp_path / "nowhere")

    def test_are_of_this_process_with_a_constant_start_time(self) -> None:
        made = MetricsExporter(clock=StoppedClock(), version="0.1.0", proc=Path("/proc"))

        starts = [
            series(made.render().body.decode(), "process_start_time_seconds") for _ in range(2)
        ]

        assert starts[0] == starts[1]
        assert starts[0][()] == pytest.approx(psutil.Process().create_time(), abs=2.0)

    def test_that_cannot_be_read_lose_no_other_family(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        text = self.scraped(self.made_up(tmp_path, limits="Max open files unlimited\n"))

        assert not series(text, "process_start_time_seconds")
        assert series(text, "gpumon_collector_success")[("metrics_process",)] == 0.0
        assert len(series(text, "gpumon_gpu_busy_seconds_total")) == 2
        assert len(caplog.records) == 1


outside_text = st.text(st.characters(), max_size=40)
numbers = st.one_of(st.none(), st.floats(), st.integers(0, 2**63))


class TestLaws:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(names=st.lists(outside_text, max_size=6), value=numbers, message=outside_text)
    def test_any_input_gives_valid_text_without_duplicates(
        self, names: list[str], value: float | None, message: str
    ) -> None:
        gpu = starved_gpu()
        assert gpu.latest is not None
        gpus = tuple(
            gpu._replace(
                device=replace(gpu.device, uuid=name, index=number, name=message),
                latest=gpu.latest._replace(power_watts=value),
            )
            for number, name in enumerate(names)
        )
        state = monitor_state(
            gpus=gpus,
            runs=tuple(run(name, job=message, shares=dict.fromkeys(names, 0.1)) for name in names),
            collectors=tuple(
                CollectorState(name=name, success=True, duration_seconds=0.0, errors_total=0)
                for name in names
            ),
        )

        families = list(text_string_to_metric_families(text_of(state)))

        seen = [
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in families
            for sample in family.samples
        ]
        assert len(seen) == len(set(seen))
        assert all(sample.value == sample.value for family in families for sample in family.samples)

    @settings(max_examples=30)
    @given(
        idle_ns=st.dictionaries(st.sampled_from(IdleCause), st.integers(0, 10**14)),
        busy_ns=st.integers(0, 10**14),
        pending_ns=st.integers(0, 10**14),
    )
    def test_seconds_are_those_of_the_ledger_unrounded_and_add_up(
        self, idle_ns: dict[IdleCause, int], busy_ns: int, pending_ns: int
    ) -> None:
        observed_ns = busy_ns + sum(idle_ns.values()) + pending_ns
        totals = GpuTotals(
            observed_ns=observed_ns, busy_ns=busy_ns, idle_ns=idle_ns, pending_ns=pending_ns
        )
        state = monitor_state(gpus=(healthy_gpu(totals=totals),), runs=())
        made = exporter()
        texts = []
        for _ in range(2):  # in the first scrape of a cause, its time is pending
            made.publish(state)
            texts.append(made.render().body.decode())

        for text in texts:
            busy, pending, observed = (
                series(text, f"gpumon_gpu_{name}")[(HEALTHY_UUID,)]
                for name in ("busy_seconds_total", "idle_pending_seconds", "observed_seconds_total")
            )
            idle = series(text, "gpumon_gpu_idle_seconds_total")
            parts_ns = [round(part * S) for part in (busy, pending, *idle.values())]
            assert sum(parts_ns) == round(observed * S) == observed_ns

        assert (busy, pending) == (busy_ns / S, pending_ns / S)
        assert idle == {(cause.value, HEALTHY_UUID): ns / S for cause, ns in idle_ns.items() if ns}

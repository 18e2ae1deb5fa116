"""Hostile rings, from the file to `/metrics`: no impossible value is ever shown."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import replace
from pathlib import Path
from random import Random

from prometheus_client.parser import text_string_to_metric_families

from gpumon.core.clock import NS_PER_S, Clock
from gpumon.core.codecs.field_codec import encode_document
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.reading import Reading
from gpumon.core.report.report import Report
from gpumon.core.ring_format.events import RingReading
from gpumon.core.sample import BusySample, Device, Frame, GpuSample, ProcessSample, Tick
from gpumon.core.state import MonitorState
from gpumon.core.wording import MAX_LABEL_LENGTH, label_text
from gpumon.errors import UsageError
from gpumon.outlets.http.live_state import LiveState
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.outlets.state_file import StateFile
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from gpumon.pipeline.monitor import Monitor
from gpumon.pipeline.report_builder import Reports
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from tests.builders.recording import facts
from tests.builders.ring import BOOT_ID, now, phases_folder
from tests.fuzz.checks import check_report, parsed
from tests.fuzz.forged_rings import HONEST_PID, other_user, valid_run
from tests.fuzz.fuzzing import Case, Fuzz, Growth, for_seconds_and_minutes
from tests.serving import new_views
from tests.waiting import no_hang

_MOST_GROWTH_KIB = 32_768
_FEW_CASES = 50
"""After more cases, some forged rings must have been accepted, or the test finds nothing."""
_LONGEST_GAP_NS = 2 * NS_PER_S
_PASSES_NS = (1_000_000, NS_PER_S // 10, NS_PER_S, NS_PER_S, 6 * NS_PER_S, 61 * NS_PER_S)
"""Time between two ticks; now and then a quarter of an hour, after which ended runs are dropped."""


class MovedClock(Clock):
    """CLOCK_MONOTONIC, moved ahead from tick to tick."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def monotonic_ns(self) -> int:
        return now() + self.ahead_ns

    def wall_time_s(self) -> float:
        return self.monotonic_ns() / NS_PER_S

    def sleep_until_ns(self, deadline_ns: int) -> None:
        raise AssertionError("this clock does not sleep")


class Daemon:
    """The ticks of `gpumon serve` in this process, with two simulated GPUs."""

    def __init__(self, folder: Path) -> None:
        self.clock = MovedClock()
        self.reader = PhaseRingReader([folder], boot_id=BOOT_ID)
        self.monitor = Monitor(replace(facts(), boot_id=BOOT_ID))
        self.reports = Reports()
        self.exporter = MetricsExporter(clock=self.clock, version="0")
        self.live = LiveState(self.clock, new_views())
        self.file = StateFile(folder / "state.json")
        self.rings: tuple[RingReading, ...] = ()
        self.forged = 0
        self._shown: dict[str, float] = {}
        self._rings_shown: dict[str, str] = {}
        self._sampled_ns = now()

    def close(self) -> None:
        self.reader.close()
        self.file.close()

    def tick(self, random: Random) -> MonitorState:
        self.clock.ahead_ns += random.choice(_PASSES_NS) * (900 if random.random() < 0.01 else 1)
        at_ns = self.clock.monotonic_ns()
        frame = Frame(taken_at_ns=at_ns, gpus=tuple(self._gpu(n, at_ns, random) for n in (0, 1)))
        self._sampled_ns = at_ns
        rings = self.reader.read(self.clock.monotonic_ns())
        self.rings = rings.rings
        self.forged += sum(run.facts.pid != HONEST_PID for run in rings.rings)
        tick = Tick(at_ns, 0, (frame,), 0, None, 0.0)
        state = self.monitor.ingest(Reading(tick, rings, self.clock.wall_time_s()))
        self.reports.follow(state)
        self.exporter.publish(state)
        self.live.publish(state)
        self.file.write(state)
        return state

    def _gpu(self, index: int, at_ns: int, random: Random) -> GpuSample:
        start_ns = max(self._sampled_ns, at_ns - _LONGEST_GAP_NS)
        level = random.choice((0.0, 0.0, 1.0, 1.0, 0.3, random.random()))
        pids = [run.host_pid for run in self.rings if random.random() < 0.5]
        processes = random.choice((None, tuple(ProcessSample(pid, 1) for pid in pids)))
        return GpuSample(
            device=Device(uuid=f"GPU-{index}", index=index),
            busy=(BusySample(start_ns, at_ns, level),) if at_ns > start_ns else (),
            utilization_ratio=level,
            processes=processes,
        )

    def check(self) -> None:
        """Check everything that outlets show."""
        counts = self.reader.newest_counts(self.clock.monotonic_ns())
        report = self.reports.report(counts)
        assert report is not None
        check_report(parsed(encode_document(encode_report(report))))
        self._check_other_reports(report)
        parsed(encode_document(self.live.document()))
        parsed(self.file.path.read_bytes())
        assert self.live.event()
        self._check_metrics()

    def _check_other_reports(self, report: Report) -> None:
        """Check reports of the last minute, of one run, and as text without control characters."""
        text = render_report(report, TextStyle(colour=False, unicode=True))
        assert text.replace("\n", "").isprintable()
        others = [self.reports.report(since_s=60.0)]
        for run in report.runs[:2]:
            with contextlib.suppress(UsageError):  # it had ended before
                others.append(self.reports.report(run=run.run))
        for one in others:
            assert one is not None
            parsed(encode_document(encode_report(one)))

    def _check_metrics(self) -> None:
        shown = metrics_in(self.exporter.render().body.decode())
        rings = {run.label: run.reading.key for run in self.monitor._runs.runs if run.label}
        begun = {label for label, key in rings.items() if self._rings_shown.get(label) != key}
        for name, value in shown.items():
            assert math.isfinite(value), (name, value)
            assert value >= 0, (name, value)
            if is_counter(name) and not is_of_a_run(name, begun):
                assert value >= self._shown.get(name, 0.0) - 1e-6, name
        self._rings_shown = rings
        assert shown['gpumon_collector_success{collector="metrics_training"}'] == 1
        self._shown = shown


def metrics_in(text: str) -> dict[str, float]:
    """Every series; labels must be short, and no series may come twice."""
    series: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert all(len(value) <= MAX_LABEL_LENGTH for value in sample.labels.values()), sample
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            key = f"{sample.name}{{{labels}}}"
            assert key not in series, key
            series[key] = sample.value
    return series


def is_counter(name: str) -> bool:
    return name.partition("{")[0].endswith(("_total", "_count", "_bucket", "_sum"))


def is_of_a_run(name: str, labels: set[str]) -> bool:
    """Whether it is a counter of one of these runs' own, which begins at 0."""
    return not name.startswith("gpumon_training_gpu_") and any(
        f'run="{label_text(label)}"' in name for label in labels
    )


class TestHostileRings:
    @for_seconds_and_minutes()
    def test_show_nothing_impossible_and_leave_a_valid_ring_exact(
        self, tmp_path: Path, seconds: float
    ) -> None:
        fuzz_rings(Fuzz(tmp_path, seconds), tmp_path)


def fuzz_rings(fuzz: Fuzz, folder: Path) -> None:
    phases_folder(folder)
    growth = Growth(os.getpid(), most_kib=_MOST_GROWTH_KIB)
    daemon = Daemon(folder)
    before = growth.descriptors()

    def one_tick(case: Case) -> None:
        with no_hang():
            did = [attacker.act(case.random) for _ in range(case.random.choice((1, 2, 5)))]
            case.tries("\n".join(did).encode())
            daemon.tick(case.random)
            daemon.check()

    try:
        with other_user(folder) as attacker, valid_run(folder) as stop:
            fuzz.run(one_tick, growth)
            counted = stop()
            daemon.tick(Random(0))
            honest = next(run for run in daemon.rings if run.facts.pid == HONEST_PID)
            daemon.check()
    finally:
        daemon.close()
    growth.check()
    print(f"{daemon.forged / max(1, fuzz.done):.1f} forged rings were accepted at a time")
    assert daemon.forged or fuzz.done < _FEW_CASES
    assert (honest.steps, honest.samples) == (counted["steps"], counted["samples"])
    assert {phase.value: ns for phase, ns in honest.phase_ns.items()} == counted["phase_ns"]
    assert growth.descriptors() <= before + 2

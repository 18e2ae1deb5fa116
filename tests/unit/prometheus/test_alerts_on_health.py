"""Tests of alerts on the daemon's own health and a job's GPUs, at any interval.

The other alerts are in ``test_alerts_at_any_interval.py``; here too ``make truth`` tries all four
pairs of intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.prometheus.builders_promtool import (
    Gpu,
    Spans,
    Story,
    Target,
    Value,
    Verify,
    daemon,
    within,
)

TWO: dict[str, Spans] = {"GPU-0": (), "GPU-1": ()}
ANY = "Gpumon.*"
COLLECTORS = ("phase_rings", "host_evidence", "state_file", "web_server", "metrics_gpu_time")
FAMILIES = ("gpumon_gpu", "gpumon_training", "gpumon_gpu_xid_errors_total")

pytestmark = pytest.mark.prometheus


def always(number: float) -> Value:
    return lambda second: number


def grows(per_second: float, *, since: float = 0.0, lump: float = 0.0, at: float = 1e9) -> Value:
    """Grows from a minute on, and by a lump at a minute."""
    return lambda second: (
        per_second * max(0.0, second - since * 60) + (lump if second >= at * 60 else 0.0)
    )


def restarted(target: Target, value: Value) -> Value:
    """The value by the daemon's running time, which restarts with it."""
    return lambda second: value(target.running_s(second))


def healthy(
    target: Target,
    gpus: Mapping[str, Spans],
    *,
    reloaded: Spans = (),
    collectors: Mapping[str, Value] | None = None,
) -> Target:
    """A daemon with busy GPUs and all its series.

    Args:
        target: What it is scraped as.
        gpus: As of ``daemon``.
        reloaded: When the driver is away; its count of memory errors restarts then.
        collectors: Those that do not always succeed.
    """
    daemon(target, {uuid: (*spans, *reloaded) for uuid, spans in gpus.items()})
    target.has("process_start_time_seconds", lambda second: second - target.running_s(second))
    for family in FAMILIES:
        target.has("gpumon_label_sets_dropped_total", always(0), family=family)
    for name in COLLECTORS:
        value = (collectors or {}).get(name, always(1))
        target.has("gpumon_collector_success", value, collector=name)
    for uuid in gpus:
        gpu = Gpu(target, reloaded)
        shares = {"checkpoint": 0.08, "imbalance": 0.05, "unknown": 0.02, "not_in_use": 0.0}
        busy = restarted(target, grows(0.85))
        target.has("gpumon_gpu_busy_seconds_total", gpu.shown(busy), uuid=uuid)
        for cause, share in shares.items():
            idle = gpu.shown(restarted(target, grows(share)))
            target.has("gpumon_gpu_idle_seconds_total", idle, uuid=uuid, cause=cause)
        target.has("gpumon_gpu_rank_wait_seconds_total", gpu.shown(always(0)), uuid=uuid)

        def old_errors(second: float) -> float:
            return 0.0 if any(second >= first * 60 for first, _ in reloaded) else 3.0

        target.has(
            "gpumon_gpu_ecc_errors_total", gpu.shown(old_errors), uuid=uuid, kind="uncorrected"
        )
    return target


class TestAHealthyHour:
    def test_with_a_reloaded_driver_fires_nothing(self, verify: Verify) -> None:
        target = healthy(Target(unscraped=((40, 41),)), TWO, reloaded=((20, 21.5),))

        verify(Story(100, (target,)).is_silent(ANY, 0, 100))

    def test_with_two_upgrades_fires_nothing(self, verify: Verify) -> None:
        target = healthy(Target(down=((20, 20.4), (28, 28.4))), TWO)

        verify(Story(75, (target,)).is_silent(ANY, 0, 75))

    def test_with_lumps_and_a_briefly_failing_collector_fires_nothing(self, verify: Verify) -> None:
        def briefly(second: float) -> float:
            return float(not within(second, ((15, 19), (30, 34))))

        target = healthy(Target(), {"GPU-0": ()}, collectors={"phase_rings": briefly})
        for uuid in ("GPU-1", "GPU-2"):
            name, known = "gpumon_gpu_idle_seconds_total", grows(1.0)
            target.has("gpumon_gpu_observed_seconds_total", known, uuid=uuid)
            target.has("gpumon_gpu_busy_seconds_total", grows(1.0, since=25), uuid=uuid)
            lump = grows(0.0, lump=1500.0, at=25)
            cause = "checkpoint" if uuid == "GPU-1" else "imbalance"
            target.has(name, lump, uuid=uuid, cause=cause)
            target.has(name, always(0), uuid=uuid, cause="unknown")

        verify(Story(120, (target,)).is_silent(ANY, 0, 120))


class TestACollector:
    def test_informs_while_it_fails_despite_failed_scrapes_and_restarts(
        self, verify: Verify
    ) -> None:
        target = Target(unscraped=((8, 9), (30, 31)), down=((40, 41),))
        healthy(target, TWO, collectors={"web_server": always(0)})
        story = Story(60, (target,)).fires("GpumonCollectorFailing", 13, 60)

        verify(story.is_silent("Gpumon(MetricsIncomplete|GPUMissing)", 0, 60))


class TestARestartingDaemon:
    def test_pages_until_it_stays_up(self, verify: Verify) -> None:
        starts = tuple((minute, minute + 0.4) for minute in range(10, 60, 3))
        target = healthy(Target(down=starts), TWO)
        story = Story(110, (target,)).is_silent(ANY, 0, 20)
        story.fires("GpumonRestartsOften", 26, 60)

        verify(story.is_silent("GpumonRestartsOften", 95, 110))

    def test_does_not_page_for_one_restart(self, verify: Verify) -> None:
        target = healthy(Target(down=((10, 11),), unscraped=((20, 24), (30, 34))), TWO)

        verify(Story(60, (target,)).is_silent("GpumonRestartsOften", 0, 60, state=".*"))


class TestMemoryErrors:
    def test_page_for_15_minutes_despite_failed_scrapes(self, verify: Verify) -> None:
        target = daemon(Target(unscraped=((24, 25),)), TWO)
        name = "gpumon_gpu_ecc_errors_total"
        new = grows(0.0, lump=1.0, at=20)
        target.has(name, new, uuid="GPU-0", kind="uncorrected")
        target.has(name, always(4), uuid="GPU-1", kind="uncorrected")
        story = Story(60, (target,)).is_silent(ANY, 0, 20).fires("GpumonGPUEccErrors", 23, 34)

        verify(story.is_silent("GpumonGPUEccErrors", 43, 60))


class TestTimeOfAJob:
    def target(self, counter: str, share: float, **labels: str) -> Target:
        """A daemon whose GPU-0 loses this share, with a failed scrape and a restart."""
        target = daemon(Target(unscraped=((50, 51),), down=((65, 65.4),)), TWO)
        for uuid, lost in (("GPU-0", share), ("GPU-1", 0.1)):
            busy = restarted(target, grows(1 - lost))
            target.has("gpumon_gpu_busy_seconds_total", busy, uuid=uuid)
            target.has(counter, restarted(target, grows(lost)), uuid=uuid, **labels)
        return target

    @pytest.mark.parametrize(
        ("counter", "labels"),
        [
            ("gpumon_gpu_idle_seconds_total", {"cause": "imbalance"}),
            ("gpumon_gpu_rank_wait_seconds_total", {}),
        ],
        ids=["idle", "in a kernel"],
    )
    def test_that_waits_for_another_gpu_informs_without_a_gap(
        self, counter: str, labels: dict[str, str], verify: Verify
    ) -> None:
        story = Story(90, (self.target(counter, 0.3, **labels),))
        story.is_silent("GpumonJobImbalanced", 0, 14).fires("GpumonJobImbalanced", 22, 90)

        verify(story)

    def test_in_checkpoints_informs_without_a_gap(self, verify: Verify) -> None:
        target = self.target("gpumon_gpu_idle_seconds_total", 0.25, cause="checkpoint")
        story = Story(90, (target,)).is_silent("GpumonCheckpointsCostly", 0, 44)

        verify(story.fires("GpumonCheckpointsCostly", 50, 90))


def test_dropped_series_inform_of_their_family(verify: Verify) -> None:
    target = healthy(Target(unscraped=((30, 31),), down=((40, 41),)), TWO)
    dropped = restarted(target, grows(2.0))
    target.has("gpumon_label_sets_dropped_total", dropped, family="gpumon_nvml_errors_total")

    verify(Story(60, (target,)).fires("GpumonLabelSetsDropped", 4, 60))

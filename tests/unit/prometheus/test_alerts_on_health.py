"""Alerts on the daemon's own health and on a job's GPUs, at any interval, with scrapes that fail.

The other alerts are in ``test_alerts_at_any_interval.py``; here too ``make truth`` tries all four
pairs of intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.prometheus.builders_promtool import (
    Gpu,
    Hold,
    Spans,
    Story,
    Target,
    Value,
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
    """Grows from a minute on, and by a lump in one moment, at a minute."""
    return lambda second: (
        per_second * max(0.0, second - since * 60) + (lump if second >= at * 60 else 0.0)
    )


def restarted(target: Target, value: Value) -> Value:
    """That of the daemon's time, which begins again with each start."""
    return lambda second: value(target.running_s(second))


def healthy(
    target: Target,
    gpus: Mapping[str, Spans],
    *,
    reloaded: Spans = (),
    collectors: Mapping[str, Value] | None = None,
) -> Target:
    """A daemon of GPUs at work, with all its series on itself and on them.

    Args:
        target: What it is scraped as.
        gpus: As of ``daemon``.
        reloaded: When the driver is away; its count of memory errors begins anew then.
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
    def test_with_a_driver_that_is_loaded_anew_fires_nothing(self, hold: Hold) -> None:
        target = healthy(Target(unscraped=((40, 41),)), TWO, reloaded=((20, 21.5),))

        hold(Story(100, (target,)).is_silent(ANY, 0, 100))

    def test_with_two_upgrades_fires_nothing(self, hold: Hold) -> None:
        target = healthy(Target(down=((20, 20.4), (28, 28.4))), TWO)

        hold(Story(75, (target,)).is_silent(ANY, 0, 75))

    def test_with_lumps_and_a_collector_that_fails_for_minutes_fires_nothing(
        self, hold: Hold
    ) -> None:
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

        hold(Story(120, (target,)).is_silent(ANY, 0, 120))


class TestACollector:
    def test_informs_while_it_fails_though_scrapes_fail_and_the_daemon_starts_anew(
        self, hold: Hold
    ) -> None:
        target = Target(unscraped=((8, 9), (30, 31)), down=((40, 41),))
        healthy(target, TWO, collectors={"web_server": always(0)})
        story = Story(60, (target,)).fires("GpumonCollectorFailing", 13, 60)

        hold(story.is_silent("Gpumon(MetricsIncomplete|GPUMissing)", 0, 60))


class TestADaemonThatStartsAnew:
    def test_every_three_minutes_pages_until_it_stays(self, hold: Hold) -> None:
        starts = tuple((minute, minute + 0.4) for minute in range(10, 60, 3))
        target = healthy(Target(down=starts), TWO)
        story = Story(110, (target,)).is_silent(ANY, 0, 20)
        story.fires("GpumonRestartsOften", 26, 60)

        hold(story.is_silent("GpumonRestartsOften", 95, 110))

    def test_once_and_is_unknown_for_a_while_pages_nobody(self, hold: Hold) -> None:
        target = healthy(Target(down=((10, 11),), unscraped=((20, 24), (30, 34))), TWO)

        hold(Story(60, (target,)).is_silent("GpumonRestartsOften", 0, 60, state=".*"))


class TestMemoryErrors:
    def test_page_for_a_quarter_of_an_hour_though_scrapes_fail(self, hold: Hold) -> None:
        target = daemon(Target(unscraped=((24, 25),)), TWO)
        name = "gpumon_gpu_ecc_errors_total"
        new = grows(0.0, lump=1.0, at=20)
        target.has(name, new, uuid="GPU-0", kind="uncorrected")
        target.has(name, always(4), uuid="GPU-1", kind="uncorrected")
        story = Story(60, (target,)).is_silent(ANY, 0, 20).fires("GpumonGPUEccErrors", 23, 34)

        hold(story.is_silent("GpumonGPUEccErrors", 43, 60))


class TestTimeOfAJob:
    def target(self, counter: str, share: float, **labels: str) -> Target:
        """A scrape fails and the daemon starts anew, while GPU-0 loses that share so."""
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
    def test_that_waits_for_another_gpu_informs_without_a_break(
        self, counter: str, labels: dict[str, str], hold: Hold
    ) -> None:
        story = Story(90, (self.target(counter, 0.3, **labels),))
        story.is_silent("GpumonJobImbalanced", 0, 14).fires("GpumonJobImbalanced", 22, 90)

        hold(story)

    def test_that_goes_into_checkpoints_informs_without_a_break(self, hold: Hold) -> None:
        target = self.target("gpumon_gpu_idle_seconds_total", 0.25, cause="checkpoint")
        story = Story(90, (target,)).is_silent("GpumonCheckpointsCostly", 0, 44)

        hold(story.fires("GpumonCheckpointsCostly", 50, 90))


def test_series_that_are_left_out_inform_of_their_family(hold: Hold) -> None:
    target = healthy(Target(unscraped=((30, 31),), down=((40, 41),)), TWO)
    dropped = restarted(target, grows(2.0))
    target.has("gpumon_label_sets_dropped_total", dropped, family="gpumon_nvml_errors_total")

    hold(Story(60, (target,)).fires("GpumonLabelSetsDropped", 4, 60))

"""Tests of alerts with scrapes and evaluations every 15 s and 1 m.

A scrape that fails for a minute, and a restart of the daemon, neither start nor end a page.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.prometheus.builders_promtool import (
    Rhythm,
    Spans,
    Story,
    Target,
    Value,
    Verify,
    daemon,
)

THREE: dict[str, Spans] = {f"GPU-{number}": () for number in range(3)}
EIGHT: dict[str, Spans] = {f"GPU-{number}": () for number in range(8)}
ANY = "Gpumon.*"

pytestmark = pytest.mark.prometheus


def until(minute: float) -> Value:
    return lambda second: 1.0 if second < minute * 60 else None


def always(number: float) -> Value:
    return lambda second: number


def part_of_its_time(target: Target, share: float) -> Value:
    return lambda second: share * target.running_s(second)


class TestAHealthyMachine:
    def test_raises_no_alert(self, verify: Verify) -> None:
        story = Story(30, (daemon(Target(), THREE),))

        verify(story.is_silent(ANY, 0, 30, state=".*"))

    def test_raises_no_alert_when_scrapes_fail_or_the_daemon_restarts(self, verify: Verify) -> None:
        target = Target(unscraped=((10, 11),), down=((30, 30.4), (45, 46)))
        story = Story(70, (daemon(target, THREE),)).is_silent(ANY, 0, 70)

        verify(story.is_silent("GpumonSamplesStale", 0, 70, state=".*"))

    @pytest.mark.parametrize("behind_s", [45.0, -3600.0], ids=["behind", "ahead"])
    def test_may_have_a_wrong_clock(self, behind_s: float, verify: Verify) -> None:
        target = Target()
        target.has("gpumon_samples_total", target.running_s)
        target.has("gpumon_last_sample_timestamp_seconds", lambda now: now - behind_s, uuid="GPU-0")

        verify(Story(30, (target,)).is_silent(ANY, 0, 30))


class TestStaleSamples:
    def test_page_for_a_lost_gpu(self, verify: Verify) -> None:
        target = daemon(Target(unscraped=((20, 21),)), THREE, lost_at={"GPU-2": 10})
        story = Story(40, (target,)).is_silent(ANY, 0, 10, state=".*")
        story.fires("GpumonSamplesStale", 15, 40)

        verify(story.is_silent("GpumonDown|GpumonGPUMissing", 0, 40))

    def test_page_if_no_gpu_was_ever_read(self, verify: Verify) -> None:
        target = Target(unscraped=((3, 4), (20, 21)), down=((30, 31),))
        target.has("gpumon_build_info", always(1), version="1.0")
        target.has("gpumon_samples_total", always(0))
        target.has("gpumon_collector_success", always(0), collector="nvml")
        story = Story(50, (target,)).fires("GpumonSamplesStale", 6, 50)

        verify(story.is_silent("GpumonGPUMissing", 0, 50))

    def test_stop_paging_when_samples_are_recent_again(self, verify: Verify) -> None:
        target = Target()
        target.has("gpumon_samples_total", target.running_s)
        target.has(
            "gpumon_last_sample_timestamp_seconds",
            lambda second: 600.0 if 600 <= second < 1800 else second,
            uuid="GPU-0",
        )
        story = Story(50, (target,)).fires("GpumonSamplesStale", 15, 30)

        verify(story.is_silent(ANY, 38, 50, state=".*"))


class TestADaemonDown:
    @pytest.mark.parametrize("job", ["gpumon", "monitoring/gpumon", "gpus"])
    def test_pages_while_it_is_in_discovery(self, job: str, verify: Verify) -> None:
        target = daemon(Target(job=job, down=((10, 999),)), THREE)
        minutes = 150 if job == "gpus" else 30
        story = Story(minutes, (target,)).is_silent(ANY, 0, 11)

        verify(story.fires("GpumonDown", 14, minutes))

    def test_pages_for_an_hour_when_its_target_left_discovery(self, verify: Verify) -> None:
        gone = daemon(Target(undiscovered=((10, 999),)), THREE)
        story = Story(100, (gone,)).fires("GpumonDown", 15, 68)
        story.is_silent("GpumonGPUMissing|GpumonSamplesStale", 0, 100)

        verify(story.is_silent(ANY, 78, 100, state=".*"))

    def test_keeps_paging_when_its_target_leaves_discovery(self, verify: Verify) -> None:
        target = Target(job="gpus", down=((10, 30),), undiscovered=((30, 999),))
        story = Story(90, (daemon(target, THREE),)).fires("GpumonDown", 14, 68)

        verify(story.is_silent(ANY, 78, 90, state=".*"))

    def test_pages_even_if_another_target_has_the_same_gpus(self, verify: Verify) -> None:
        gone = daemon(Target("a:19835", undiscovered=((10, 999),)), THREE)
        story = Story(40, (gone, daemon(Target("b:19835"), THREE)))

        verify(story.fires("GpumonDown", 15, 40))

    @pytest.mark.parametrize(
        "after",
        [Target("10.0.0.9:19835"), Target(job="gpus")],
        ids=["as a pod with a new address", "as a job with a new name"],
    )
    def test_is_not_a_replaced_one(self, after: Target, verify: Verify) -> None:
        before = daemon(Target(undiscovered=((10, 999),)), THREE)
        new = Target(after.instance, after.job, undiscovered=((0, 10.6),))
        story = Story(40, (before, daemon(new, THREE)))

        verify(story.is_silent(ANY, 0, 40))

    def test_is_not_another_exporter(self, verify: Verify) -> None:
        other = Target("a:9100", "node", down=((10, 999),))
        left = Target("b:9100", "node", undiscovered=((10, 999),))
        story = Story(30, (daemon(Target(), THREE), other, left))

        verify(story.is_silent(ANY, 0, 30, state=".*"))


class TestAMissingGpu:
    def test_informs_after_a_reboot_from_eight_to_seven(self, verify: Verify) -> None:
        target = Target(down=((20, 25), (60, 60.4)), unscraped=((50, 51),))
        story = Story(75, (daemon(target, {**EIGHT, "GPU-7": ((20, 999),)}),))
        story.is_silent("GpumonGPUMissing", 0, 30).fires("GpumonGPUMissing", 41, 75)
        named = 'ALERTS{alertname="GpumonGPUMissing",uuid="GPU-7",gpu="7",name="H200"}'
        story.at(60, f"count({named})", 1)

        verify(story.is_silent("GpumonSamplesStale", 0, 75))

    def test_informs_when_the_daemon_restarted_after_the_loss(self, verify: Verify) -> None:
        target = daemon(Target(down=((30, 30.4),)), THREE, lost_at={"GPU-2": 10})
        story = Story(80, (target,)).fires("GpumonSamplesStale", 15, 34)

        verify(story.fires("GpumonGPUMissing", 48, 80))

    def test_informs_when_it_was_lost_before_gpumon_started(self, verify: Verify) -> None:
        target = daemon(Target(unscraped=((6, 7), (40, 41))), THREE, lost_at={"GPU-2": -1})
        story = Story(60, (target,)).is_silent(ANY, 0, 9)

        verify(story.fires("GpumonGPUMissing", 13, 60))

    def test_is_not_one_with_new_labels_after_a_driver_update(self, verify: Verify) -> None:
        target = Target(down=((20, 22),))
        target.has("gpumon_build_info", always(1), version="1.0")
        target.has("gpumon_samples_total", target.running_s)
        for place, (driver, name, spans) in enumerate(
            [("570.1", "NVIDIA H200", (0, 20)), ("580.2", "NVIDIA H200 SXM", (20, 999))]
        ):
            labels = {"uuid": "GPU-0", "gpu": str(place), "name": name, "driver_version": driver}

            def info(second: float, spans: tuple[float, float] = spans) -> float | None:
                return 1.0 if spans[0] * 60 <= second < spans[1] * 60 else None

            target.has("gpumon_gpu_info", info, **labels)
        story = Story(60, (target,)).is_silent(ANY, 0, 60)
        newest = 'count(instance_uuid:gpumon_gpu_info:last1d{name="NVIDIA H200 SXM",gpu="1"})'

        verify(story.at(30, newest, 1).at(30, newest.split("{")[0] + ")", 1))

    def test_is_not_a_new_mig_instance(self, verify: Verify) -> None:
        target = daemon(Target(), {"MIG-a": ((20, 99),), "MIG-b": ((0, 20),)})
        labels = {"uuid": "GPU-0", "gpu": "0", "name": "H200", "driver_version": "570.1"}
        target.has("gpumon_gpu_info", always(1), **labels)

        verify(Story(60, (target,)).is_silent(ANY, 0, 60))

    def test_informs_even_if_only_the_other_gpu_is_known(self, verify: Verify) -> None:
        target = Target()
        target.has("gpumon_gpu_info", always(1), uuid="GPU-0", gpu="0", name="H200")
        target.has("gpumon_gpu_info", until(20), uuid="GPU-1", gpu="1", name="H200")

        verify(Story(50, (target,)).fires("GpumonGPUMissing", 38, 50))

    def test_informs_for_a_day(self, tmp_path: Path) -> None:
        day = 24 * 60
        target = daemon(Target(), {"GPU-0": (), "GPU-1": ((20, 9999),)})
        story = Story(day + 60, (target,)).fires("GpumonGPUMissing", 40, 60)
        story.fires("GpumonGPUMissing", day, day + 15)

        story.is_silent(ANY, day + 30, day + 60)
        assert story.failures(Rhythm(60, 60, 20), tmp_path) == ""


class TestLostTime:
    @pytest.mark.parametrize(
        ("alert", "counter", "within_minutes"),
        [
            ("GpumonGPUStarved", "gpumon_gpu_starved_seconds_total", 17),
            ("GpumonGPUStarvationSuspected", "gpumon_gpu_suspected_seconds_total", 22),
        ],
        ids=["starved", "suspected"],
    )
    def test_fires_without_a_gap(
        self, alert: str, counter: str, within_minutes: int, verify: Verify
    ) -> None:
        target = Target(unscraped=((30, 31),), down=((40, 40.4), (50, 52)))
        daemon(target, {"GPU-0": (), "GPU-1": ()})
        for uuid, share in (("GPU-0", 0.4), ("GPU-1", 0.02)):
            target.has(counter, part_of_its_time(target, share), uuid=uuid)
        story = Story(65, (target,)).is_silent(alert, 0, 9).fires(alert, within_minutes, 65)

        verify(story)

    def test_fires_without_a_name(self, verify: Verify) -> None:
        target = Target()
        target.has("gpumon_gpu_observed_seconds_total", target.running_s, uuid="GPU-0")
        target.has("gpumon_gpu_starved_seconds_total", target.running_s, uuid="GPU-0")

        verify(Story(40, (target,)).fires("GpumonGPUStarved", 17, 40))

    def test_stops_firing_when_it_is_fixed(self, verify: Verify) -> None:
        target = daemon(Target(), {"GPU-0": ()})
        starved = "gpumon_gpu_starved_seconds_total"
        target.has(starved, lambda second: 0.4 * min(second, 1800), uuid="GPU-0")
        story = Story(60, (target,)).fires("GpumonGPUStarved", 17, 30)

        verify(story.is_silent("GpumonGPUStarved", 43, 60, state=".*"))

    def test_to_throttling_fires_without_a_gap(self, verify: Verify) -> None:
        target = daemon(Target(unscraped=((30, 31),), down=((40, 42),)), {"GPU-0": ()})
        target.has("gpumon_gpu_throttled", always(1), uuid="GPU-0", reason="hw_thermal_slowdown")
        target.has("gpumon_gpu_throttled", always(1), uuid="GPU-0", reason="sw_power_cap")

        verify(Story(60, (target,)).fires("GpumonGPUThrottled", 9, 60))


class TestAnXid:
    def error(self, target: Target, *counts: tuple[float, float, float]) -> Story:
        """XID 79 of GPU-0, with this count between two minutes."""
        daemon(target, {"GPU-0": ()})

        def count(second: float) -> float | None:
            for first, last, number in counts:
                if first * 60 <= second < last * 60:
                    return number
            return None

        target.has("gpumon_gpu_xid_errors_total", count, uuid="GPU-0", xid="79")
        return Story(90, (target,))

    def test_pages_for_15_minutes_even_if_the_daemon_restarts(self, verify: Verify) -> None:
        story = self.error(Target(down=((33, 33.4),), unscraped=((36, 37),)), (30, 33, 1))
        story.is_silent(ANY, 0, 30).fires("GpumonGPUXidErrors", 33, 45)

        verify(story.is_silent("GpumonGPUXidErrors", 56, 90))

    def test_pages_again_when_it_occurs_again_after_a_restart(self, verify: Verify) -> None:
        story = self.error(Target(down=((30, 31),)), (10, 30, 1), (60, 999, 1))
        story.is_silent("GpumonGPUXidErrors", 36, 60)

        verify(story.fires("GpumonGPUXidErrors", 63, 75))

    @pytest.mark.parametrize("minutes", [1, 7], ids=["for a minute", "for seven"])
    def test_of_yesterday_does_not_page_after_failed_scrapes(
        self, minutes: int, verify: Verify
    ) -> None:
        story = self.error(Target(unscraped=((40, 40 + minutes),)), (0, 999, 2))

        verify(story.is_silent("GpumonGPUXidErrors", 25, 90))


class TestAFailingField:
    def failing(self, target: Target, until_minute: float = 999) -> Target:
        """Temperature fails twice a minute; on another GPU, it failed once, long ago."""
        failing = daemon(target, THREE)
        function = "nvmlDeviceGetTemperatureV"
        failing.has(
            "gpumon_nvml_errors_total",
            lambda second: 1.0 + min(target.running_s(second), 60 * until_minute) // 30,
            function=function,
            code="999",
        )
        failing.has("gpumon_nvml_errors_total", always(1), function=function, code="4")
        failing.has("gpumon_collector_success", always(0), collector="nvml")
        return failing

    def test_informs_of_its_function_but_not_of_a_missing_gpu(self, verify: Verify) -> None:
        target = self.failing(Target(unscraped=((30, 31),), down=((40, 41),)))
        story = Story(60, (target,)).fires("GpumonFieldFailing", 14, 60)

        verify(story.is_silent("GpumonGPUMissing", 0, 60))

    def test_is_silent_once_it_works_again(self, verify: Verify) -> None:
        story = Story(60, (self.failing(Target(), until_minute=3),))

        verify(story.is_silent("GpumonFieldFailing", 0, 60))


def test_incomplete_metrics_inform(verify: Verify) -> None:
    target = daemon(Target(unscraped=((30, 31),), down=((40, 41),)), THREE)
    target.has("gpumon_collector_success", always(0), collector="metrics_gpu_time")
    target.has("gpumon_collector_success", always(1), collector="metrics_training")
    story = Story(60, (target,)).fires("GpumonMetricsIncomplete", 13, 60)

    verify(story)

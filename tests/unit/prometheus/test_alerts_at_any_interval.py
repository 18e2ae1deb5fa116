"""Alerts with scrapes and evaluations every 15 s and 1 m.

A scrape that fails for a minute, and a restart of the daemon, neither start nor end an alert.
``make truth`` tries all four pairs of intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.unit.prometheus.builders_promtool import (
    Rhythm,
    Spans,
    Story,
    Target,
    Value,
    Verify,
    always,
    daemon,
    grows,
    healthy,
    restarted,
    until,
    within,
)

TWO: dict[str, Spans] = {f"GPU-{number}": () for number in range(2)}
THREE: dict[str, Spans] = {f"GPU-{number}": () for number in range(3)}
EIGHT: dict[str, Spans] = {f"GPU-{number}": () for number in range(8)}
ANY = "Gpumon.*"

pytestmark = pytest.mark.prometheus


class TestAHealthyMachine:
    def test_raises_no_alert_when_scrapes_fail_or_the_daemon_restarts(self, verify: Verify) -> None:
        target = healthy(Target(unscraped=((10, 11), (50, 51)), down=((30, 30.4), (38, 38.4))), TWO)
        story = Story(75, (target,)).is_silent(ANY, 0, 75)
        story.is_silent("Gpumon(SamplesStale|RestartsOften)", 0, 30, state=".*")

        verify(story)

    def test_raises_no_alert_when_the_driver_is_reloaded(self, verify: Verify) -> None:
        target = healthy(Target(unscraped=((40, 41),)), TWO, reloaded=((20, 21.5),))

        verify(Story(100, (target,)).is_silent(ANY, 0, 100))

    @pytest.mark.parametrize("behind_s", [45.0, -3600.0], ids=["behind", "ahead"])
    def test_may_have_a_wrong_clock(self, behind_s: float, verify: Verify) -> None:
        target = Target()
        target.has("gpumon_samples_total", target.running_s)
        target.has("gpumon_last_sample_timestamp_seconds", lambda now: now - behind_s, uuid="GPU-0")

        verify(Story(30, (target,)).is_silent(ANY, 0, 30))

    def test_raises_no_alert_by_time_that_is_counted_at_once_or_a_collector_that_fails_briefly(
        self, verify: Verify
    ) -> None:
        def briefly(second: float) -> float:
            return float(not within(second, ((15, 19), (30, 34))))

        target = healthy(Target(), {"GPU-0": ()}, collectors={"phase_rings": briefly})
        for uuid, cause in (("GPU-1", "checkpoint"), ("GPU-2", "imbalance")):
            name = "gpumon_gpu_idle_seconds_total"
            target.has("gpumon_gpu_observed_seconds_total", grows(1.0), uuid=uuid)
            target.has("gpumon_gpu_busy_seconds_total", grows(1.0, since=25), uuid=uuid)
            target.has(name, grows(0.0, lump=1500.0, at=25), uuid=uuid, cause=cause)
            target.has(name, always(0), uuid=uuid, cause="unknown")

        verify(Story(120, (target,)).is_silent(ANY, 0, 120))


def lost_time(counter: str, share: float, **labels: str) -> Callable[[Target], None]:
    """GPU-0 loses this share of its time, and GPU-1 a little."""

    def add(target: Target) -> None:
        for uuid, lost in (("GPU-0", share), ("GPU-1", 0.02)):
            busy = restarted(target, grows(1 - lost))
            target.has("gpumon_gpu_busy_seconds_total", busy, uuid=uuid)
            target.has(counter, restarted(target, grows(lost)), uuid=uuid, **labels)

    return add


def collector(name: str) -> Callable[[Target], None]:
    return lambda target: target.has("gpumon_collector_success", always(0), collector=name)


def throttled(target: Target) -> None:
    for reason in ("hw_thermal_slowdown", "sw_power_cap"):
        target.has("gpumon_gpu_throttled", always(1), uuid="GPU-0", reason=reason)


def failing_field(target: Target, until_minute: float = 999) -> None:
    """Temperature fails twice a minute; another error came once, long ago."""
    function = "nvmlDeviceGetTemperatureV"
    target.has(
        "gpumon_nvml_errors_total",
        lambda second: 1.0 + min(target.running_s(second), 60 * until_minute) // 30,
        function=function,
        code="999",
    )
    target.has("gpumon_nvml_errors_total", always(1), function=function, code="4")
    target.has("gpumon_collector_success", always(0), collector="nvml")


def dropped_series(target: Target) -> None:
    dropped = restarted(target, grows(2.0))
    target.has("gpumon_label_sets_dropped_total", dropped, family="gpumon_nvml_errors_total")


IDLE = "gpumon_gpu_idle_seconds_total"


class TestAnAlert:
    @pytest.mark.parametrize(
        ("alert", "trouble", "silent_until", "fires_from"),
        [
            ("GpumonGPUStarved", lost_time("gpumon_gpu_starved_seconds_total", 0.4), 9, 17),
            (
                "GpumonGPUStarvationSuspected",
                lost_time("gpumon_gpu_suspected_seconds_total", 0.4),
                9,
                22,
            ),
            ("GpumonJobImbalanced", lost_time(IDLE, 0.3, cause="imbalance"), 14, 22),
            ("GpumonJobImbalanced", lost_time("gpumon_gpu_rank_wait_seconds_total", 0.3), 14, 22),
            ("GpumonCheckpointsCostly", lost_time(IDLE, 0.25, cause="checkpoint"), 44, 50),
            ("GpumonGPUThrottled", throttled, 4, 9),
            ("GpumonFieldFailing", failing_field, 4, 14),
            ("GpumonMetricsIncomplete", collector("metrics_gpu_time"), 4, 13),
            ("GpumonCollectorFailing", collector("web_server"), 4, 13),
            ("GpumonLabelSetsDropped", dropped_series, 0, 4),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_fires_without_a_gap_despite_failed_scrapes_and_restarts(
        self, alert: str, trouble: Callable[[Target], None], silent_until: float,
        fires_from: float, verify: Verify,
    ) -> None:  # fmt: skip
        target = Target(unscraped=((58, 59),), down=((65, 65.4), (75, 76)))
        trouble(daemon(target, TWO))
        story = Story(90, (target,)).fires(alert, fires_from, 90)
        if silent_until:
            story.is_silent(alert, 0, silent_until)
        story.is_silent("GpumonGPUMissing", 0, 90)

        verify(story)

    def test_needs_no_name_of_the_gpu(self, verify: Verify) -> None:
        target = Target()
        target.has("gpumon_gpu_observed_seconds_total", target.running_s, uuid="GPU-0")
        target.has("gpumon_gpu_starved_seconds_total", target.running_s, uuid="GPU-0")

        verify(Story(40, (target,)).fires("GpumonGPUStarved", 17, 40))

    def test_stops_firing_when_the_cause_is_fixed(self, verify: Verify) -> None:
        target = daemon(Target(), {"GPU-0": ()})
        starved = "gpumon_gpu_starved_seconds_total"
        target.has(starved, lambda second: 0.4 * min(second, 1800), uuid="GPU-0")
        failing_field(target, until_minute=3)
        story = Story(60, (target,)).fires("GpumonGPUStarved", 17, 30)

        story.is_silent("GpumonGPUStarved", 43, 60, state=".*")
        verify(story.is_silent("GpumonFieldFailing", 0, 60))


def job(target: Target, *ranks: tuple[str, str], job_id: str, until_minute: float = 999) -> None:
    """Runs of one job, each with the GPU that it uses."""
    for run, uuid in ranks:
        shown = until(until_minute)
        target.has("gpumon_gpu_job_info", shown, uuid=uuid, run=run, job_id=job_id, user="ann")


def starve(target: Target, shares: Mapping[str, Value]) -> None:
    """GPUs whose starved seconds grow so."""
    for uuid, value in shares.items():
        target.has("gpumon_gpu_starved_seconds_total", restarted(target, value), uuid=uuid)


STARVED = "GpumonGPUStarved"


class TestAJobWhoseInputIsLate:
    def test_is_one_page_despite_failed_scrapes_and_restarts_and_a_gpu_that_recovers(
        self, verify: Verify
    ) -> None:
        target = daemon(Target(unscraped=((38, 39),), down=((45, 45.4), (55, 56))), EIGHT)
        starve(target, {uuid: grows(0.4) for uuid in list(EIGHT)[:7]})
        starve(target, {"GPU-7": lambda second: 0.4 * min(second, 1500)})
        job(target, *((f"llama-r{uuid[-1]}", uuid) for uuid in EIGHT), job_id="7.0")
        story = Story(70, (target,)).is_silent(STARVED, 0, 9).fires(STARVED, 17, 70)
        labels = f'{{alertname="{STARVED}",run="llama",job_id="7.0",user="ann"}}'

        verify(story.at(70, f"count(ALERTS{labels})", 1))

    def test_is_one_page_for_each_machine_and_each_of_two_jobs(self, verify: Verify) -> None:
        first, second = (daemon(Target(f"{name}:19835"), TWO) for name in "ab")
        for target in (first, second):
            starve(target, dict.fromkeys(TWO, grows(0.5)))
        job(first, ("llama-r0", "GPU-0"), ("llama-r1", "GPU-1"), job_id="7.0")
        job(second, ("llama-r2", "GPU-0"), job_id="7.0")
        job(second, ("resnet", "GPU-1"), job_id="resnet-41")
        story = Story(40, (first, second)).fires(STARVED, 17, 40, count=3)

        verify(story.at(40, f'count(ALERTS{{alertname="{STARVED}",run="llama"}})', 2))

    def test_may_have_two_ranks_on_one_gpu(self, verify: Verify) -> None:
        target = daemon(Target(), {"GPU-0": ()})
        starve(target, {"GPU-0": grows(0.5)})
        job(target, ("llama-r0", "GPU-0"), ("llama-r1-4711", "GPU-0"), job_id="7.0")

        verify(Story(40, (target,)).fires(STARVED, 17, 40))

    def test_is_not_named_when_it_has_ended(self, verify: Verify) -> None:
        target = daemon(Target(), TWO)
        starve(target, {"GPU-0": grows(0.5)})
        job(target, ("llama", "GPU-0"), job_id="llama-41", until_minute=30)
        story = Story(80, (target,)).fires(STARVED, 17, 30)
        story.at(75, f'count(ALERTS{{alertname="{STARVED}",alertstate="firing",uuid="GPU-0"}})', 1)

        verify(story.at(75, f'count(ALERTS{{alertname="{STARVED}",job_id!=""}})', 0))

    def test_is_one_page_when_all_ranks_hang(self, verify: Verify) -> None:
        target = daemon(Target(), EIGHT)
        for rank in range(8):
            target.has("gpumon_training_hanging", until(999, since=5), run=f"llama-r{rank}")
        story = Story(30, (target,)).fires("GpumonTrainingHangs", 14, 30)

        verify(story.at(30, 'count(ALERTS{alertname="GpumonTrainingHangs",run="llama"})', 1))


class TestCountersThatMoveEveryFewSeconds:
    """The driver's samples are read as seldom as every 5 s."""

    @pytest.mark.parametrize("every_s", [4.0, 4.7, 5.0])
    def test_raise_no_alert_nor_begin_one(self, every_s: float, verify: Verify) -> None:
        target = healthy(Target(read_every_s=every_s), TWO)

        verify(Story(75, (target,)).is_silent(ANY, 0, 75, state=".*"))

    @pytest.mark.parametrize(
        ("alert", "trouble", "silent_until", "fires_from"),
        [
            ("GpumonGPUStarved", lost_time("gpumon_gpu_starved_seconds_total", 0.31), 9, 17),
            (
                "GpumonGPUStarvationSuspected",
                lost_time("gpumon_gpu_suspected_seconds_total", 0.31),
                9,
                22,
            ),
            ("GpumonJobImbalanced", lost_time(IDLE, 0.21, cause="imbalance"), 14, 22),
            ("GpumonCheckpointsCostly", lost_time(IDLE, 0.21, cause="checkpoint"), 44, 50),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_fire_an_alert_as_those_that_move_all_the_time(
        self, alert: str, trouble: Callable[[Target], None], silent_until: float,
        fires_from: float, verify: Verify,
    ) -> None:  # fmt: skip
        target = daemon(Target(read_every_s=4.7), TWO)
        trouble(target)
        story = Story(90, (target,)).fires(alert, fires_from, 90)

        verify(story.is_silent(alert, 0, silent_until))


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
    @pytest.mark.parametrize("job", ["monitoring/gpumon", "gpus"])
    def test_pages_while_it_is_in_discovery(self, job: str, verify: Verify) -> None:
        target = daemon(Target(job=job, down=((10, 999),)), THREE)
        minutes = 150 if job == "gpus" else 30
        story = Story(minutes, (target,)).is_silent(ANY, 0, 11)

        verify(story.fires("GpumonDown", 14, minutes))

    @pytest.mark.parametrize("down_from", [None, 10])
    def test_pages_for_an_hour_when_its_target_left_discovery(
        self, down_from: float | None, verify: Verify
    ) -> None:
        down = () if down_from is None else ((down_from, 30),)
        gone = Target(job="gpus", down=down, undiscovered=((30 if down else 10, 999),))
        story = Story(100, (daemon(gone, THREE),)).fires("GpumonDown", 15, 68)
        story.is_silent("GpumonGPUMissing|GpumonSamplesStale", 0, 100)

        verify(story.is_silent(ANY, 98, 100, state=".*"))

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

    def test_again_and_again_pages_until_it_stays_up(self, verify: Verify) -> None:
        starts = tuple((minute, minute + 0.4) for minute in range(10, 60, 3))
        upgraded = Target("b:19835", down=((10, 11),), unscraped=((20, 24), (30, 34)))
        targets = healthy(Target(down=starts), TWO), healthy(upgraded, TWO)
        story = Story(110, targets).is_silent(ANY, 0, 20)
        story.fires("GpumonRestartsOften", 26, 60)

        verify(story.is_silent("GpumonRestartsOften", 95, 110))


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
        old = {"gpu": "0", "name": "NVIDIA H200", "driver_version": "570.1"}
        new = {"gpu": "1", "name": "NVIDIA H200 SXM", "driver_version": "580.2"}
        target.has("gpumon_gpu_info", until(20), uuid="GPU-0", **old)
        target.has("gpumon_gpu_info", until(999, since=20), uuid="GPU-0", **new)
        story = Story(60, (target,)).is_silent(ANY, 0, 60)
        newest = 'count(instance_uuid:gpumon_gpu_info:last1d{name="NVIDIA H200 SXM",gpu="1"})'

        verify(story.at(30, newest, 1).at(30, newest.split("{")[0] + ")", 1))

    def test_is_not_a_new_mig_instance(self, verify: Verify) -> None:
        target = daemon(Target(), {"MIG-a": ((20, 99),), "MIG-b": ((0, 20),)})
        labels = {"uuid": "GPU-0", "gpu": "0", "name": "H200", "driver_version": "570.1"}
        target.has("gpumon_gpu_info", always(1), **labels)

        verify(Story(60, (target,)).is_silent(ANY, 0, 60))

    def test_informs_for_a_day_even_if_only_the_other_gpu_is_known(self, tmp_path: Path) -> None:
        day = 24 * 60
        target = daemon(Target(), {"GPU-0": (), "GPU-1": ((20, 9999),)})
        story = Story(day + 60, (target,)).fires("GpumonGPUMissing", 40, 60)
        story.fires("GpumonGPUMissing", day, day + 15)

        story.is_silent(ANY, day + 30, day + 60)
        assert story.failures(Rhythm(60, 60, 20), tmp_path) == ""


class TestErrorsOfAGpu:
    @staticmethod
    def xid(target: Target, *counts: tuple[float, float, float]) -> Story:
        """XID 79 of GPU-0, with this count between two minutes."""
        daemon(target, {"GPU-0": ()})

        def count(second: float) -> float | None:
            for first, last, number in counts:
                if first * 60 <= second < last * 60:
                    return number
            return None

        target.has("gpumon_gpu_xid_errors_total", count, uuid="GPU-0", xid="79")
        return Story(90, (target,))

    def test_page_for_15_minutes_even_if_the_daemon_restarts(self, verify: Verify) -> None:
        story = self.xid(Target(down=((33, 33.4),), unscraped=((36, 37),)), (30, 33, 1))
        story.is_silent(ANY, 0, 30).fires("GpumonGPUXidErrors", 33, 45)

        verify(story.is_silent("GpumonGPUXidErrors", 56, 90))

    def test_page_again_when_they_occur_again_after_a_restart(self, verify: Verify) -> None:
        story = self.xid(Target(down=((30, 31),)), (10, 30, 1), (60, 999, 1))
        story.is_silent("GpumonGPUXidErrors", 36, 60)

        verify(story.fires("GpumonGPUXidErrors", 63, 75))

    @pytest.mark.parametrize("minutes", [1, 7], ids=["for a minute", "for seven"])
    def test_of_yesterday_do_not_page_after_failed_scrapes(
        self, minutes: int, verify: Verify
    ) -> None:
        story = self.xid(Target(unscraped=((40, 40 + minutes),)), (0, 999, 2))

        verify(story.is_silent("GpumonGPUXidErrors", 25, 90))

    def test_in_memory_page_for_15_minutes_despite_failed_scrapes(self, verify: Verify) -> None:
        target = daemon(Target(unscraped=((24, 25),)), TWO)
        name, new = "gpumon_gpu_ecc_errors_total", grows(0.0, lump=1.0, at=20)
        target.has(name, new, uuid="GPU-0", kind="uncorrected")
        target.has(name, always(4), uuid="GPU-1", kind="uncorrected")
        story = Story(60, (target,)).is_silent(ANY, 0, 20).fires("GpumonGPUEccErrors", 23, 34)

        verify(story.is_silent("GpumonGPUEccErrors", 43, 60))

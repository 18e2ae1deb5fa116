"""Specification of the NVML source: what it makes of GPUs and drivers that misbehave."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.sample import GpuSample
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.source import NvmlSource
from tests.builders_nvml import (
    DRAIN,
    MS,
    Clock,
    Open,
    busy_ns,
    following,
    read_for,
    recent,
    samples_of,
    total_ns,
)
from tests.fakenvml.control import (
    NOT_SUPPORTED,
    UNINITIALIZED,
    UNKNOWN,
    VERSION_MISMATCH,
    FakeNvml,
)
from tests.fakenvml.layout import DOUBLE


class TestALostGpu:
    def test_says_why_and_the_others_go_on(self, fake_nvml: FakeNvml, open_source: Open) -> None:
        source = open_source()
        source.read()

        fake_nvml.lose(0)
        time.sleep(0.2)
        lost, other = source.read().gpus

        assert lost == GpuSample(device=lost.device, error=lost.error)
        assert lost.error is not None
        assert "lost" in lost.error
        assert "dmesg" in lost.error
        assert other.error is None
        assert other.busy != ()

    def test_is_picked_up_when_it_answers_and_its_absence_is_not_covered(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.ring(0, [])
        source = open_source()
        source.read()
        fake_nvml.lose(0)
        for _ in read_for(source, 0.3, 0.1):
            pass

        fake_nvml.find(0)
        found_ns = time.monotonic_ns()
        samples = samples_of(read_for(source, 0.3, 0.1))

        assert samples
        assert samples[0].start_ns > found_ns - 150 * MS

    def test_that_is_the_only_one_is_no_failure_of_the_source(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.reorder([0])
        source = open_source()
        fake_nvml.lose(0)

        assert source.read().gpus[0].error is not None

    def test_with_another_code_says_that_code(self, fake_nvml: FakeNvml, open_source: Open) -> None:
        source = open_source()
        fake_nvml.lose(1, 10)

        assert "(10)" in (source.read().gpus[1].error or "")

    def test_that_was_lost_from_the_start_appears_when_it_is_back(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        fake_nvml.lose(1)
        source = open_source()
        assert len(source.read().gpus) == 1

        fake_nvml.find(1)
        clock.ahead_ns += 6 * NS_PER_S
        source.read()

        assert len(source.read().gpus) == 2


class TestADriverThatIsGone:
    @pytest.mark.parametrize("code", [UNINITIALIZED, UNKNOWN, VERSION_MISMATCH])
    def test_makes_the_whole_source_unavailable(
        self, fake_nvml: FakeNvml, open_source: Open, code: int
    ) -> None:
        source = open_source()
        source.read()

        fake_nvml.fail_everything(code)

        with pytest.raises(SourceUnavailableError):
            source.read()

    def test_is_tried_again_but_not_at_every_read(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        source = open_source()
        fake_nvml.fail_everything(UNKNOWN)
        fake_nvml.fail("nvmlInitWithFlags", VERSION_MISMATCH)

        for _ in range(20):
            with pytest.raises(SourceUnavailableError):
                source.read()

        assert fake_nvml.calls("nvmlInitWithFlags") == 1

    def test_is_picked_up_after_a_reload_with_the_same_gpus_and_no_time_twice(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        fake_nvml.wave(0, period_s=0.1, busy_ratio=0.5, window_s=0.02)
        source = open_source()
        frames = list(read_for(source, 0.3, 0.1))

        fake_nvml.reload_driver()
        with pytest.raises(SourceUnavailableError):
            source.read()
        clock.ahead_ns += NS_PER_S
        source.read()
        clock.ahead_ns = 0
        frames += list(read_for(source, 0.4, 0.1))

        samples = samples_of(iter(frames))
        assert {frame.gpus[0].device.uuid for frame in frames} == {fake_nvml.uuid(0)}
        assert all(early.end_ns <= late.start_ns for early, late in pairwise(samples))
        seconds_before, seconds_after = (dict(frames[at].call_seconds)[DRAIN] for at in (0, -1))
        assert seconds_after >= seconds_before

    def test_from_the_start_cannot_be_opened(self, fake_nvml: FakeNvml, clock: Clock) -> None:
        fake_nvml.fail("nvmlInitWithFlags", VERSION_MISMATCH)

        with pytest.raises(SourceUnavailableError, match="reboot or reload the driver"):
            NvmlSource(clock)

    def test_but_lists_no_gpu_says_so(self, fake_nvml: FakeNvml, clock: Clock) -> None:
        fake_nvml.reorder([])

        with pytest.raises(SourceUnavailableError, match="lists no GPU"):
            NvmlSource(clock)


class TestAWallClockThatIsSet:
    @pytest.mark.parametrize("by_s", [3600, -3600])
    def test_changes_no_sum(self, fake_nvml: FakeNvml, clock: Clock, by_s: int) -> None:
        wall_ahead_ns = 0

        def read_clock_ns(clock_id: int) -> int:
            ahead_ns = wall_ahead_ns if clock_id == time.CLOCK_REALTIME else 0
            return time.clock_gettime_ns(clock_id) + ahead_ns

        fake_nvml.wave(0, period_s=0.1, busy_ratio=0.7, window_s=0.1 / 6)
        source = NvmlSource(clock, read_clock_ns=read_clock_ns)
        frames = list(read_for(source, 0.55, 0.1))

        fake_nvml.stamps_jump(by_s * 1_000_000)
        wall_ahead_ns = by_s * NS_PER_S
        frames += list(read_for(source, 1.0, 0.1))
        source.close()

        samples = samples_of(iter(frames))
        start_ns, end_ns = samples[0].start_ns, samples[-1].end_ns
        assert seconds(end_ns - start_ns) > 1.3
        assert total_ns(samples) == pytest.approx(end_ns - start_ns, rel=0.005)
        truth_ns = fake_nvml.busy_ns(0, start_ns, end_ns)
        assert busy_ns(samples) == pytest.approx(truth_ns, rel=0.015)
        assert sum(frame.rejected for frame in frames) == 0


class TestACallThatIsSlow:
    def test_of_one_gpu_costs_no_time_of_the_others(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        for slot in (0, 1):
            fake_nvml.wave(slot, period_s=0.1, busy_ratio=0.5, window_s=0.02)
        source = open_source()
        source.read()
        fake_nvml.delay(DRAIN, 300_000, gpu=0)

        samples = samples_of(read_for(source, 1.2, 0.05), index=1)

        assert total_ns(samples) == samples[-1].end_ns - samples[0].start_ns

    def test_is_seen_in_the_seconds_of_its_function(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        source = open_source()
        source.read()
        fake_nvml.delay(DRAIN, 100_000)
        source.read()
        fake_nvml.delay(DRAIN, 0)

        clock.ahead_ns += NS_PER_S
        spent = dict(source.read().call_seconds)

        assert 0.2 <= spent[DRAIN] < 0.5
        assert spent["nvmlDeviceGetPowerUsage"] < 0.1


class TestAValueThatNoDeviceCanMean:
    def test_is_counted_once_and_not_integrated(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.ring(0, recent(fake_nvml, 50, 50, 50))
        source = open_source()
        source.read()
        time.sleep(0.01)

        fake_nvml.push(0, *following(fake_nvml, 0, 100, 255, 101, 30))
        frame, later = source.read(), source.read()

        assert frame.rejected == 2
        assert [sample.busy_ratio for sample in frame.gpus[0].busy] == [1.0, 0.3]
        assert later.rejected == 0

    @pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf")])
    def test_may_be_no_number_at_all(
        self, fake_nvml: FakeNvml, open_source: Open, value: float
    ) -> None:
        fake_nvml.gpu(0).value_type = DOUBLE
        fake_nvml.ring(0, recent(fake_nvml, 50, 50, 50))
        source = open_source()
        source.read()
        time.sleep(0.01)

        fake_nvml.push(0, *following(fake_nvml, 0, value, 30))
        frame = source.read()

        assert frame.rejected == 1
        assert [sample.busy_ratio for sample in frame.gpus[0].busy] == [0.3]

    def test_may_come_from_the_other_call_too(self, fake_nvml: FakeNvml, open_source: Open) -> None:
        fake_nvml.ring(0, [])
        fake_nvml.gpu(0).rates_percent = 200
        source = open_source()
        source.read()
        time.sleep(0.05)

        frame = source.read()

        assert frame.rejected == 1
        assert frame.gpus[0].busy == ()


class TestAFieldThatIsNotSupported:
    @pytest.mark.parametrize(
        ("functions", "field", "calls_a_reading"),
        [
            ("nvmlDeviceGetPowerUsage", "power_watts", 1),
            ("nvmlDeviceGetClockInfo", "sm_clock_hertz", 2),
            ("nvmlDeviceGetTotalEnergyConsumption", "energy_joules", 1),
            (
                "nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2 "
                "nvmlDeviceGetComputeRunningProcesses",
                "processes",
                1,
            ),
        ],
    )
    def test_is_no_answer_asked_once_and_harms_no_other(
        self,
        fake_nvml: FakeNvml,
        open_source: Open,
        clock: Clock,
        functions: str,
        field: str,
        calls_a_reading: int,
    ) -> None:
        for function in functions.split():
            fake_nvml.fail(function, NOT_SUPPORTED, gpu=0)
        source = open_source()
        for _ in range(4):
            clock.ahead_ns += 6 * NS_PER_S
            frame = source.read()

        first, second = frame.gpus
        assert getattr(first, field) is None
        assert getattr(second, field) is not None
        assert first.error is None
        assert fake_nvml.calls(functions.split()[0]) == calls_a_reading * (1 + 4)

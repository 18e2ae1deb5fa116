"""What the driver ceased to tell is no answer, is counted and told once, and holds nobody up.

A daemon as people run it: what its port, its state file and its log say.
"""

from __future__ import annotations

import time

import pytest

from tests.fakenvml.control import GPU_IS_LOST, NOT_SUPPORTED, UNKNOWN
from tests.faults.faulty_machine import Machine, closes, gpu
from tests.patience import wait_until

LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
TEMPERATURE = "nvmlDeviceGetTemperatureV"
POWER = "nvmlDeviceGetPowerUsage"
ERRORS = 'gpumon_nvml_errors_total{{code="{1}",function="{0}"}}'
SUCCESS = 'gpumon_collector_success{collector="nvml"}'


class TestAUtilizationThatNoGpuCanMean:
    def test_leaves_the_gauge_and_the_state_after_three_seconds(self, machine: Machine) -> None:
        fake = machine.fake
        gauge = f'gpumon_gpu_utilization_ratio{{uuid="{fake.uuid(0)}"}}'
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["utilization_ratio"] is not None)
            now_ns = time.monotonic_ns()
            fake.ring(0, [(fake.stamp_us(now_ns + k * 100_000_000), 101) for k in range(200)])
            time.sleep(5.0)
            state, metrics = daemon.state(), daemon.metrics()

            assert gpu(state)["utilization_ratio"] is None
            assert gauge not in metrics
            assert gpu(state, 1)["utilization_ratio"] is not None
            assert gpu(state)["present"]
            assert gpu(state)["temperature_celsius"] == 54.0
            assert closes(state)

            fake.wave(0, period_s=1.0, busy_ratio=0.7)
            daemon.wait_for(lambda state: gpu(state)["utilization_ratio"] is not None)


class TestAFieldThatFails:
    def test_is_no_answer_and_counted_and_told_when_it_begins_and_when_it_ends(
        self, machine: Machine
    ) -> None:
        fake = machine.fake
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["temperature_celsius"] is not None)
            assert daemon.metrics()[SUCCESS] == 1.0
            fake.fail(TEMPERATURE, UNKNOWN, gpu=0)
            fake.fail(POWER, UNKNOWN, gpu=1)
            fake.fail("nvmlDeviceGetSamples", NOT_SUPPORTED)
            series = ERRORS.format(TEMPERATURE, UNKNOWN)
            wait_until(lambda: daemon.metrics().get(series, 0) >= 1)
            wait_until(lambda: daemon.metrics().get(ERRORS.format(POWER, UNKNOWN), 0) >= 4)
            wait_until(lambda: daemon.metrics()[SUCCESS] == 0.0)
            state, metrics = daemon.state(), daemon.metrics()
            fake.fail(TEMPERATURE, 0, gpu=0)
            fake.fail(POWER, 0, gpu=1)
            wait_until(lambda: daemon.metrics()[SUCCESS] == 1.0)
            wait_until(lambda: "GPU 0: reading its temperature works again" in daemon.log())
            log = daemon.log()

        assert gpu(state)["temperature_celsius"] is None
        assert gpu(state, 1)["power_watts"] is None
        assert gpu(state, 1)["temperature_celsius"] == 54.0
        assert f'gpumon_gpu_temperature_celsius{{uuid="{fake.uuid(0)}"}}' not in metrics
        assert not any("nvml_errors" in name and f'"{NOT_SUPPORTED}"' in name for name in metrics)
        assert metrics['gpumon_collector_errors_total{collector="nvml"}'] >= 5
        assert log.count("GPU 0: reading its temperature fails: ") == 1
        assert log.count("GPU 1: reading its power fails: ") == 1
        assert log.count("GPU 1: reading its power works again, after ") == 1
        assert log.count(" fails: ") == 2

    def test_of_a_lost_gpu_is_the_gpu_and_no_field(self, machine: Machine) -> None:
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state, 1)["observed_ns"] > 0)
            machine.fake.lose(1)
            daemon.wait_for(lambda state: not gpu(state, 1)["present"])
            series = ERRORS.format("nvmlDeviceGetSamples", GPU_IS_LOST)
            wait_until(lambda: daemon.metrics().get(series, 0) >= 1)

            assert " fails: " not in daemon.log()
            assert "GPU 1: the GPU is lost" in daemon.log()


class TestAFieldThatTakesEightSeconds:
    @pytest.mark.measured
    def test_costs_no_tick_and_no_observed_time(self, machine: Machine) -> None:
        fake = machine.fake
        fake.run(0, 4000)
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 1_000_000_000)
            fake.delay(LIST, 8_000_000)
            wait_until(lambda: fake.waiting(LIST) > 0)
            before = daemon.state()
            missed = daemon.metrics()["gpumon_samples_missed_total"]
            threads = daemon.thread_count()
            time.sleep(6.0)
            assert fake.waiting(LIST) == 1
            after = daemon.state()
            assert daemon.metrics()["gpumon_samples_missed_total"] == missed
            wait_until(lambda: daemon.thread_count() <= threads)  # that of the request ends, too
            passed_ns = after["monotonic_ns"] - before["monotonic_ns"]
            for index in (0, 1):
                observed_ns = gpu(after, index)["observed_ns"] - gpu(before, index)["observed_ns"]
                assert abs(observed_ns - passed_ns) < 0.4e9
                assert gpu(after, index)["present"]
            began_s = time.monotonic()
            daemon.process.terminate()
            assert daemon.process.wait(10) == 0
            assert time.monotonic() - began_s < 4.0
            log = daemon.log()
        assert log.count("has not come back") == 1

"""What a daemon says of answers that are missing, impossible, no text, or that cease to come.

On its port, in its state file and in its log: what ceased is no answer, is counted and told once.
"""

from __future__ import annotations

import json
import os
import time

from tests.builders_faults import DRAIN, POWER
from tests.daemon import RunningDaemon
from tests.fakenvml import codes
from tests.faults.faulty_machine import COLLECTOR_SUCCESS, Machine, closes, gpu, observed_ns
from tests.patience import wait_until

TEMPERATURE, ENERGY = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTotalEnergyConsumption"
ALL_ERRORS = 'gpumon_collector_errors_total{collector="nvml"}'


def errors(daemon: RunningDaemon, function: str, code: int) -> float:
    """How often the daemon was answered so."""
    series = f'gpumon_nvml_errors_total{{code="{code}",function="{function}"}}'
    return daemon.metrics().get(series, 0)


def told(log: str, *words: str) -> int:
    """In how many lines of a log all of these stand."""
    return sum(all(word in line for word in words) for line in log.splitlines())


class TestAField:
    def test_that_fails_is_no_answer_and_counted_and_told_when_it_begins_and_when_it_ends(
        self, machine: Machine
    ) -> None:
        fake = machine.fake
        fake.fail(ENERGY, codes.NOT_SUPPORTED, gpu=0)  # which is no failure
        with machine.serve_well() as daemon:
            assert daemon.metrics()[COLLECTOR_SUCCESS] == 1.0
            fake.fail(TEMPERATURE, codes.UNKNOWN, gpu=0)
            fake.fail(POWER, codes.UNKNOWN, gpu=1)
            fake.fail(DRAIN, codes.NOT_SUPPORTED)
            wait_until(lambda: errors(daemon, TEMPERATURE, codes.UNKNOWN) >= 1)
            wait_until(lambda: errors(daemon, POWER, codes.UNKNOWN) >= 4)
            wait_until(lambda: daemon.metrics()[COLLECTOR_SUCCESS] == 0.0)
            state, metrics = daemon.state(), daemon.metrics()
            fake.fail(TEMPERATURE, 0, gpu=0)
            fake.fail(POWER, 0, gpu=1)
            wait_until(lambda: daemon.metrics()[COLLECTOR_SUCCESS] == 1.0)
            wait_until(lambda: "GPU 0: reading its temperature works again" in daemon.log())
            log = daemon.log()

        assert gpu(state)["temperature_celsius"] is None
        assert gpu(state, 1)["power_watts"] is None
        assert gpu(state, 1)["temperature_celsius"] == 54.0
        assert f'gpumon_gpu_temperature_celsius{{uuid="{fake.uuid(0)}"}}' not in metrics
        counted = [name for name in metrics if name.startswith("gpumon_nvml_errors_total")]
        assert not [name for name in counted if f'code="{codes.NOT_SUPPORTED}"' in name]
        assert metrics[ALL_ERRORS] >= 5
        assert told(log, "GPU 0: ", " temperature fails: ") == 1
        assert told(log, "GPU 1: ", " power fails: ") == 1
        assert told(log, "GPU 1: ", " works again, ") == 1
        assert told(log, " fails: ") == 2
        joules = [name for name in metrics if name.startswith("gpumon_gpu_energy_joules_total{")]
        assert joules == [f'gpumon_gpu_energy_joules_total{{uuid="{fake.uuid(1)}"}}']


class TestAGpuThatIsLost:
    def test_has_no_gauges_within_two_periods_and_is_the_same_when_it_is_back(
        self, machine_of_both_generations: Machine
    ) -> None:
        fake = machine_of_both_generations.fake
        uuid = fake.uuid(1)
        with machine_of_both_generations.serve_well() as daemon:
            for slot, xid in ((0, 31), (0, 31), (1, 79)):
                fake.report_xid(slot, xid)
            xids = {
                f'gpumon_gpu_xid_errors_total{{uuid="{fake.uuid(0)}",xid="31"}}': 2.0,
                f'gpumon_gpu_xid_errors_total{{uuid="{uuid}",xid="79"}}': 1.0,
            }
            wait_until(lambda: xids.items() <= daemon.metrics().items())
            fake.lose(1)
            lost_ns = daemon.state()["monotonic_ns"]
            gone = daemon.wait_for(lambda state: not gpu(state, 1)["present"])
            wait_until(lambda: errors(daemon, DRAIN, codes.GPU_IS_LOST) >= 1)
            metrics = daemon.metrics()
            later = daemon.wait_for(lambda state: observed_ns(gone, state) > 0)
            fake.find(1)
            back = daemon.wait_for(lambda state: observed_ns(gone, state, 1) > 0)
            log = daemon.log()

        assert gone["monotonic_ns"] - lost_ns < 4 * 500_000_000
        assert f'gpumon_gpu_utilization_ratio{{uuid="{uuid}"}}' not in metrics
        assert metrics[COLLECTOR_SUCCESS] == 0.0
        assert xids.items() <= metrics.items()
        assert observed_ns(gone, later, 1) == 0
        assert gpu(back, 1)["uuid"] == uuid
        assert closes(later)
        assert closes(back)
        assert told(log, "GPU 1: ", "(NVML 15)") >= 1
        assert " fails: " not in log, "it is the GPU and no field"
        assert (log.count("XID 31: "), log.count("XID 79: ")) == (1, 1)


class TestAUtilizationThatNoGpuCanMean:
    def test_is_counted_never_integrated_and_leaves_the_gauge_after_three_seconds(
        self, machine: Machine
    ) -> None:
        fake = machine.fake
        gauge = f'gpumon_gpu_utilization_ratio{{uuid="{fake.uuid(0)}"}}'
        with machine.serve_well() as daemon:
            now_ns, before = time.monotonic_ns(), daemon.state()
            stamps_us = [fake.stamp_us(now_ns + k * 100_000_000) for k in range(200)]
            fake.ring(0, [(stamp_us, (255, 101)[k % 2]) for k, stamp_us in enumerate(stamps_us)])
            time.sleep(5.0)
            state, metrics = daemon.state(), daemon.metrics()

            assert metrics[ALL_ERRORS] >= 10
            assert gpu(state)["busy_ns"] - gpu(before)["busy_ns"] < 2_500_000_000
            assert gpu(state)["utilization_ratio"] is None
            assert gauge not in metrics
            assert gpu(state, 1)["utilization_ratio"] is not None
            assert observed_ns(before, state, 1) > 0
            assert gpu(state)["present"]
            assert gpu(state)["temperature_celsius"] == 54.0
            assert closes(state)

            fake.wave(0, period_s=1.0, busy_ratio=0.7)
            daemon.wait_for(lambda state: gpu(state)["utilization_ratio"] is not None)


class TestANameThatIsNoText:
    def test_of_a_process_harms_nobody(self, machine: Machine) -> None:
        machine.fake.run(0, os.getpid(), name=b"\xff\xfe\n evil")
        with machine.serve_well() as daemon:
            assert daemon.get("/metrics")[0] == 200
            json.loads(daemon.get("/api/v1/state")[1])


class TestADoctor:
    def test_reads_the_board_field_by_field(self, machine: Machine) -> None:
        seen = machine.gpumon("doctor", "--json")

        found = {one["name"]: one for one in json.loads(seen.stdout)["findings"]}
        assert seen.returncode == 0
        assert "H100" in found["gpu 0"]["detail"]
        assert found["gpu 1 utilisation"]["status"] == "ok"
        assert "167 ms" in found["gpu 1 utilisation"]["detail"]
        assert found["gpu 0 processes"]["status"] == "ok"

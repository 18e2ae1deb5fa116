"""What a daemon says of answers that are missing or cease to come.

On its port, in its state file and in its log: a value that ceased is counted and reported once.
"""

from __future__ import annotations

from tests.builders.driver_faults import DRAIN, POWER
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


def reported(log: str, *words: str) -> int:
    """In how many lines of a log all of these stand."""
    return sum(all(word in line for word in words) for line in log.splitlines())


class TestAField:
    def test_that_fails_is_no_answer_and_counted_and_reported_when_it_begins_and_when_it_ends(
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
        assert reported(log, "GPU 0: ", " temperature fails: ") == 1
        assert reported(log, "GPU 1: ", " power fails: ") == 1
        assert reported(log, "GPU 1: ", " works again, ") == 1
        assert reported(log, " fails: ") == 2
        joules = [name for name in metrics if name.startswith("gpumon_gpu_energy_joules_total{")]
        assert joules == [f'gpumon_gpu_energy_joules_total{{uuid="{fake.uuid(1)}"}}']


class TestAGpuThatIsLost:
    def test_has_no_gauges_within_two_periods_and_is_the_same_when_it_is_back(
        self, machine: Machine
    ) -> None:
        fake = machine.fake
        uuid = fake.uuid(1)
        with machine.serve_well() as daemon:
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
        assert reported(log, "GPU 1: ", "(NVML 15)") >= 1
        assert " fails: " not in log, "it is the GPU and no field"
        assert (log.count("XID 31: "), log.count("XID 79: ")) == (1, 1)

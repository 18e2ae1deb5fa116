"""A real daemon while its driver is missing, hangs, loses a GPU or fails to answer: one fault each.

``unit/sources/nvml`` and ``test_driver_faults.py`` try all other answers without a daemon.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.sources.nvml.drain_schedule import LONGEST_NS
from tests.builders.driver_faults import DRAIN, INIT, LIST, NOT_LOADED, REPLACED, DriverFault
from tests.daemon import RunningDaemon
from tests.fakenvml import codes
from tests.fakenvml.generations import PRESENT_DRIVER, DriverGeneration
from tests.faults.faulty_machine import (
    COLLECTOR_SUCCESS,
    Machine,
    closes,
    gpu,
    observed_ns,
)
from tests.needs import without_driver
from tests.waiting import wait_until

SERVE, DOCTOR = ("serve", "--listen", "127.0.0.1:0"), ("doctor",)
WAIT, ENERGY = "nvmlEventSetWait_v2", "nvmlDeviceGetTotalEnergyConsumption"
TEMPERATURE = "nvmlDeviceGetTemperatureV"


def ready(daemon: RunningDaemon) -> int:
    return daemon.get("/-/ready")[0]


def errors(daemon: RunningDaemon, function: str, code: int) -> float:
    series = f'gpumon_nvml_errors_total{{code="{code}",function="{function}"}}'
    return daemon.metrics().get(series, 0)


def lines_with(log: str, *texts: str) -> int:
    """The number of lines of a log that contain all of these texts."""
    return sum(all(text in line for text in texts) for line in log.splitlines())


class TestADriverThatCannotBeOpened:
    @pytest.mark.parametrize("command", [SERVE, DOCTOR])
    def test_is_a_missing_library_and_exit_code_3(
        self, machine: Machine, command: tuple[str, ...]
    ) -> None:
        machine.environ = without_driver()

        ended = machine.gpumon(*command)

        assert ended.returncode == 3
        assert "libnvidia-ml.so.1" in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr

    @pytest.mark.parametrize(("fault", "command"), [(REPLACED, SERVE), (NOT_LOADED, DOCTOR)])
    def test_ends_the_command_with_exit_code_3_and_what_to_do(
        self, machine: Machine, fault: DriverFault, command: tuple[str, ...]
    ) -> None:
        fault.begin(machine.fake)

        ended = machine.gpumon(*command)

        assert ended.returncode == 3
        assert re.search(fault.refuses, " ".join((ended.stdout + ended.stderr).split()))

    @pytest.mark.parametrize("fault", [REPLACED, NOT_LOADED], ids=str)
    def test_is_logged_once_and_opened_later_by_a_daemon_that_waits(
        self, machine: Machine, fault: DriverFault
    ) -> None:
        fault.begin(machine.fake)
        with machine.serve("--wait-for-source") as daemon:
            wait_until(lambda: machine.fake.calls(INIT) >= 2)
            assert ready(daemon) == 503
            fault.end(machine.fake)

            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)

            assert ready(daemon) == 200
            assert len(re.findall(fault.refuses, daemon.log())) == 1

    def test_ends_a_daemon_that_used_it_before_if_only_a_new_process_helps(
        self, machine: Machine
    ) -> None:
        with machine.serve_well("--wait-for-source") as daemon:
            REPLACED.begin(machine.fake)

            assert daemon.process.wait(20) == 3
            assert re.search(REPLACED.message, daemon.log().splitlines()[-1])

    def test_is_opened_on_one_thread_while_health_is_answered(self, machine: Machine) -> None:
        """Without persistence mode, each opening loads the firmware of every board."""
        machine.fake.delay(INIT, 60_000_000)
        with machine.serve("--wait-for-source", "--period", "0.1") as daemon:
            wait_until(lambda: machine.fake.waiting(INIT) > 0)
            threads = daemon.thread_count()
            time.sleep(1.0)

            assert daemon.get("/-/healthy")[0] == 200
            assert ready(daemon) == 503
            assert daemon.metrics()[COLLECTOR_SUCCESS] == 0.0
            assert daemon.thread_count() <= threads + 2  # web requests
            assert machine.fake.calls(INIT) == 1
            machine.fake.delay(INIT, 0)
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            assert ready(daemon) == 200


class TestADriverThatIsUnloaded:
    def test_makes_the_daemon_not_ready_until_it_is_loaded_again(self, machine: Machine) -> None:
        with machine.serve_well("--wait-for-source") as daemon:
            assert ready(daemon) == 200
            machine.fake.fail_everything(codes.UNINITIALIZED)
            wait_until(lambda: ready(daemon) == 503)
            assert daemon.get("/-/ready")[1].startswith("not ready: the NVIDIA driver ")
            assert daemon.get("/-/healthy")[0] == 200

            machine.fake.reload_driver()
            machine.fake.fail_everything(codes.SUCCESS)
            wait_until(lambda: ready(daemon) == 200)


class TestACallThatHangs:
    @pytest.mark.measured
    def test_leaves_pages_up_and_gpus_unobserved_until_it_returns(self, machine: Machine) -> None:
        with machine.serve_well() as daemon:
            threads = daemon.thread_count()
            machine.hang(DRAIN)
            hung = daemon.wait_for(lambda state: not gpu(state)["present"])
            time.sleep(1.5)
            began_s = time.monotonic()
            assert daemon.metrics()[COLLECTOR_SUCCESS] == 0.0
            assert time.monotonic() - began_s < 1.0
            assert daemon.get("/")[0] == 200
            still = daemon.state()
            assert still["monotonic_ns"] > hung["monotonic_ns"]
            assert observed_ns(hung, still) == observed_ns(hung, still, 1) == 0
            assert daemon.thread_count() <= threads + 3

            machine.fake.delay(DRAIN, 0)
            released_ns = time.monotonic_ns()
            back = daemon.wait_for(lambda state: observed_ns(still, state, 1) > 0)
            assert back["monotonic_ns"] - released_ns < 5_000_000_000
            assert closes(back)

    @pytest.mark.measured
    def test_keeps_no_daemon_from_stopping(self, machine: Machine) -> None:
        with machine.serve_well() as daemon:
            for function in (WAIT, LIST, DRAIN):
                machine.hang(function)
            daemon.process.terminate()

            assert daemon.process.wait(4) == 0


class TestAFieldThatFails:
    def test_has_no_value_and_is_counted_and_logged_when_it_begins_and_ends(
        self, machine: Machine
    ) -> None:
        fake = machine.fake
        fake.fail(ENERGY, codes.NOT_SUPPORTED, gpu=0)  # which is no failure
        with machine.serve_well() as daemon:
            fake.fail(TEMPERATURE, codes.UNKNOWN, gpu=0)
            wait_until(lambda: errors(daemon, TEMPERATURE, codes.UNKNOWN) >= 1)
            wait_until(lambda: daemon.metrics()[COLLECTOR_SUCCESS] == 0.0)
            state, metrics = daemon.state(), daemon.metrics()
            fake.fail(TEMPERATURE, 0, gpu=0)
            wait_until(lambda: daemon.metrics()[COLLECTOR_SUCCESS] == 1.0)
            wait_until(lambda: "GPU 0: reading its temperature works again" in daemon.log())
            log = daemon.log()

        assert gpu(state)["temperature_celsius"] is None
        assert gpu(state, 1)["temperature_celsius"] == 54.0
        counted = [name for name in metrics if name.startswith("gpumon_nvml_errors_total")]
        assert not [name for name in counted if f'code="{codes.NOT_SUPPORTED}"' in name]
        assert lines_with(log, "GPU 0: ", " temperature fails: ") == 1
        assert lines_with(log, " fails: ") == 1
        joules = [name for name in metrics if name.startswith("gpumon_gpu_energy_joules_total{")]
        assert joules == [f'gpumon_gpu_energy_joules_total{{uuid="{fake.uuid(1)}"}}']


class TestAGpuThatIsLost:
    def test_has_no_gauges_soon_and_is_the_same_gpu_later(self, machine: Machine) -> None:
        fake, uuid = machine.fake, machine.fake.uuid(1)
        xids = {
            f'gpumon_gpu_xid_errors_total{{uuid="{fake.uuid(0)}",xid="31"}}': 2.0,
            f'gpumon_gpu_xid_errors_total{{uuid="{uuid}",xid="79"}}': 1.0,
        }
        with machine.serve_well() as daemon:
            for slot, xid in ((0, 31), (0, 31), (1, 79)):
                fake.report_xid(slot, xid)
            wait_until(lambda: xids.items() <= daemon.metrics().items())
            fake.lose(1)
            lost_ns = daemon.state()["monotonic_ns"]
            gone = daemon.wait_for(lambda state: not gpu(state, 1)["present"])
            wait_until(lambda: errors(daemon, DRAIN, codes.GPU_IS_LOST) >= 1)
            metrics = daemon.metrics()
            assert ready(daemon) == 200, "the other GPU can be read"
            later = daemon.wait_for(lambda state: observed_ns(gone, state) > 0)
            fake.find(1)
            back = daemon.wait_for(lambda state: observed_ns(gone, state, 1) > 0)
            log = daemon.log()

        assert gone["monotonic_ns"] - lost_ns < LONGEST_NS + 4 * 500_000_000
        assert f'gpumon_gpu_utilization_ratio{{uuid="{uuid}"}}' not in metrics
        assert metrics[COLLECTOR_SUCCESS] == 0.0
        assert xids.items() <= metrics.items()
        assert observed_ns(gone, later, 1) == 0
        assert gpu(back, 1)["uuid"] == uuid
        assert closes(later)
        assert closes(back)
        assert lines_with(log, "GPU 1: ", "(NVML 15)") >= 1
        assert " fails: " not in log, "the GPU fails and no field"
        assert (log.count("XID 31: "), log.count("XID 79: ")) == (1, 1)


def test_a_driver_with_longer_process_records_has_the_same_processes(
    library_of: Callable[[DriverGeneration], Path], tmp_path: Path
) -> None:
    """535.43: of its newest list, all pids but the first would be wrong."""
    lacks = ("nvmlDeviceGetRunningProcessDetailList",)
    soname = "libnvidia-ml-535.so.1"
    driver = replace(PRESENT_DRIVER, name="driver-535", lacks=lacks, soname=soname)
    machine = Machine(tmp_path, library_of(driver).parent, driver, gpus=1)
    machine.fake.control.wide_processes = 1
    memory_bytes = {os.getpid(): 1 << 30, os.getppid(): 2 << 30}
    for pid, held_bytes in memory_bytes.items():
        machine.fake.run(0, pid, memory_bytes=held_bytes)
    with machine.serve_well() as daemon:
        found = json.loads(daemon.get("/api/v1/state")[1])["gpus"][0]["processes"]
    machine.fake.close()

    assert {one["pid"]: one["memory_used_bytes"] for one in found} == memory_bytes

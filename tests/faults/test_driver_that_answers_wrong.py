"""What a daemon does with answers that are missing, impossible or no text."""

from __future__ import annotations

import json
import math
import os
import re
import time

import pytest

from tests.fakenvml.control import NOT_SUPPORTED
from tests.faults.faulty_machine import DRAIN, Machine, closes, gpu
from tests.patience import wait_until


class TestFault03OneFieldIsNotSupported:
    def test_costs_that_series_and_no_other_and_is_asked_once(self, machine: Machine) -> None:
        machine.fake.fail("nvmlDeviceGetPowerUsage", NOT_SUPPORTED, gpu=0)
        with machine.serve("--period", "0.2") as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 1_500_000_000)
            metrics = daemon.metrics()

        first, second = machine.fake.uuid(0), machine.fake.uuid(1)
        assert f'gpumon_gpu_power_watts{{uuid="{first}"}}' not in metrics
        assert f'gpumon_gpu_power_watts{{uuid="{second}"}}' in metrics
        assert f'gpumon_gpu_memory_used_bytes{{uuid="{first}"}}' in metrics
        powers = machine.fake.calls("nvmlDeviceGetPowerUsage")
        assert powers <= machine.fake.calls(DRAIN) // 2 + 1


class TestFault04AGpuIsLost:
    def test_its_gauges_go_within_two_periods_and_the_other_goes_on(self, machine: Machine) -> None:
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state, 1)["observed_ns"] > 0)
            machine.fake.lose(1)
            lost_ns = daemon.state()["monotonic_ns"]
            gone = daemon.wait_for(lambda state: not gpu(state, 1)["present"])
            series = f'gpumon_gpu_utilization_ratio{{uuid="{machine.fake.uuid(1)}"}}'
            metrics = daemon.metrics()
            before = gpu(gone, 0)["observed_ns"]
            later = daemon.wait_for(lambda state: gpu(state, 0)["observed_ns"] > before)

            assert gone["monotonic_ns"] - lost_ns < 4 * 500_000_000
            assert series not in metrics
            assert gpu(later, 1)["observed_ns"] == gpu(gone, 1)["observed_ns"]
            assert closes(later)

    def test_it_is_the_same_gpu_when_it_is_back(self, machine: Machine) -> None:
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state, 1)["observed_ns"] > 0)
            machine.fake.lose(1)
            gone = daemon.wait_for(lambda state: not gpu(state, 1)["present"])
            machine.fake.find(1)

            back = daemon.wait_for(
                lambda state: gpu(state, 1)["observed_ns"] > gpu(gone, 1)["observed_ns"]
            )

            assert gpu(back, 1)["uuid"] == machine.fake.uuid(1)
            assert closes(back)


class TestFault07AValueThatNoDeviceCanMean:
    @pytest.mark.parametrize("value", [255, 101])
    def test_is_counted_and_never_integrated(self, machine: Machine, value: int) -> None:
        fake = machine.fake
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            now_ns = time.monotonic_ns()
            fake.ring(0, [(fake.stamp_us(now_ns + k * 100_000_000), value) for k in range(20)])
            before = daemon.state()
            errors = 'gpumon_collector_errors_total{collector="nvml"}'
            wait_until(lambda: daemon.metrics()[errors] >= 10)
            after = daemon.state()

            assert gpu(after)["busy_ns"] - gpu(before)["busy_ns"] < 2_500_000_000
            assert closes(after)
            assert gpu(after, 1)["observed_ns"] > gpu(before, 1)["observed_ns"]


class TestANameThatIsNoText:
    def test_of_a_process_harms_nobody(self, machine: Machine) -> None:
        machine.fake.run(0, os.getpid(), name=b"\xff\xfe\n evil")
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)

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


class TestFaults04And08OnOneMachine:
    """A GPU that is cut, one that is lost and two that change places, as Prometheus sees them."""

    def test_say_nothing_that_is_not_so(self, machine_of_both_generations: Machine) -> None:
        fake = machine_of_both_generations.fake
        for slot in (0, 1):
            fake.wave(slot, period_s=1.0, busy_ratio=1.0)
        with machine_of_both_generations.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state, 1)["observed_ns"] > 0)
            cut, whole = fake.uuid(0), fake.uuid(1)

            instances = fake.cut(0, 2)
            series = [f'gpumon_gpu_memory_used_bytes{{uuid="{uuid}"}}' for uuid in instances]
            wait_until(lambda: set(series) <= daemon.metrics().keys())
            metrics = daemon.metrics()
            assert f'gpumon_gpu_utilization_ratio{{uuid="{cut}"}}' not in metrics
            assert f'gpumon_gpu_power_watts{{uuid="{cut}"}}' in metrics

            fake.reorder([1, 0])
            wait_until(lambda: _number_of(daemon.metrics(), whole) == "0")
            assert _number_of(daemon.metrics(), cut) == "1"

            fake.lose(1)
            gone = f'gpumon_gpu_utilization_ratio{{uuid="{whole}"}}'
            wait_until(lambda: gone not in daemon.metrics())
            metrics = daemon.metrics()

        assert metrics['gpumon_collector_success{collector="nvml"}'] == 0.0
        for uuid in (cut, whole):
            idle = "gpumon_gpu_idle_seconds_total", f'uuid="{uuid}"'
            assert not any(metrics[name] for name in metrics if all(part in name for part in idle))
        assert not any(math.isnan(value) for value in metrics.values())
        assert "GPU 0: the GPU is lost" in daemon.log()


def _number_of(metrics: dict[str, float], uuid: str) -> str | None:
    """The index by which ``/metrics`` calls a GPU."""
    for name in metrics:
        if name.startswith("gpumon_gpu_info{") and f'uuid="{uuid}"' in name:
            found = re.search(r'gpu="(\d+)"', name)
            return found[1] if found else None
    return None

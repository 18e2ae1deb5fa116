"""Proof of the fake: tools that others made run on it unchanged, and show what the test wrote.

gpustat and nvitop ask some forty functions of the driver in ways of their own, and each falls
back in its own way on an old driver.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import DRIVER_GENERATIONS, MIDDLE_DRIVER, DriverGeneration
from tests.processes import ending

BIN = Path(sys.executable).parent
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Machine:
    """Three GPUs: one busy, one nearly idle, one cut; and the process that uses the first two."""

    fake: FakeNvml
    environment: dict[str, str]
    pid: int
    parts: tuple[str, ...]

    def output_of(self, tool: str, *arguments: str) -> str:
        finished = subprocess.run(
            [str(BIN / tool), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (finished.returncode, finished.stderr.strip()) == (0, "")
        return finished.stdout


@pytest.fixture(scope="module", params=DRIVER_GENERATIONS, ids=str)
def machine(
    request: pytest.FixtureRequest,
    library_of: Callable[[DriverGeneration], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Machine]:
    driver: DriverGeneration = request.param
    control = tmp_path_factory.mktemp("tools") / "gpus.control"
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with ending(started) as worker, FakeNvml(control, gpus=3, driver=driver) as fake:
        fake.gpu(0).rates_percent, fake.gpu(1).rates_percent = 73, 4
        fake.gpu(1).memory_used = 11 * GIB
        fake.gpu(1).power_mw, fake.gpu(1).temperature_c = 71_000, 33
        fake.gpu(1).ecc_uncorrected = 5
        fake.run(0, worker.pid, memory_bytes=7 * GIB, sm=64)
        fake.run(1, worker.pid, memory_bytes=3 * GIB, sm=5)
        parts = fake.cut(2, 2)
        fake.part(2, 1).memory_used = 5 * GIB
        fake.run(2, worker.pid, memory_bytes=2 * GIB, part=1)
        environment = {**fake_env(fake.path, library_of(driver).parent), "COLUMNS": "100"}
        yield Machine(fake, environment, worker.pid, parts)


def used_bytes(fake: FakeNvml, slot: int) -> int:
    """What a tool shows as used: an old driver counts what is reserved too."""
    gpu = fake.gpu(slot)
    counts_reserved = "nvmlDeviceGetMemoryInfo_v2" in fake.driver.lacks
    return int(gpu.memory_used + (gpu.memory_reserved if counts_reserved else 0))


@pytest.fixture(scope="module")
def gpustat(machine: Machine) -> list[dict[str, Any]]:
    """What ``gpustat --json`` says of each GPU."""
    return list(json.loads(machine.output_of("gpustat", "--json"))["gpus"])


@pytest.fixture(scope="module")
def nvitop(machine: Machine) -> str:
    """What ``nvitop -1`` prints."""
    return machine.output_of("nvitop", "--once", "--ascii")


class TestGpustat:
    def test_names_every_gpu(self, machine: Machine, gpustat: list[dict[str, Any]]) -> None:
        fake = machine.fake

        assert [gpu["uuid"] for gpu in gpustat] == [fake.uuid(slot) for slot in range(3)]
        assert {gpu["name"] for gpu in gpustat} == {fake.driver.gpu_name}

    def test_shows_what_each_does(self, machine: Machine, gpustat: list[dict[str, Any]]) -> None:
        assert [gpu["utilization.gpu"] for gpu in gpustat] == [73, 4, None]
        assert [gpu["power.draw"] for gpu in gpustat] == [310, 71, 310]
        assert [gpu["temperature.gpu"] for gpu in gpustat] == [54, 33, 54]
        for slot in (0, 1):
            assert gpustat[slot]["memory.used"] == used_bytes(machine.fake, slot) // MIB

    def test_shows_the_process_and_what_it_holds(
        self, machine: Machine, gpustat: list[dict[str, Any]]
    ) -> None:
        holds = [
            [(process["pid"], process["gpu_memory_usage"]) for process in gpu["processes"]]
            for gpu in gpustat
        ]

        assert holds == [[(machine.pid, gib * 1024)] for gib in (7, 3, 2)]

    def test_prints_the_same_for_people(self, machine: Machine) -> None:
        printed = machine.output_of("gpustat", "--no-color", "--show-pid", "--show-power")

        first, second, third = printed.splitlines()[1:]
        watts = machine.fake.driver.power_limit_mw // 1000
        assert re.search(rf"73 %,\s+310 / {watts} W", first)
        assert f"/{machine.pid}(7168M)" in first
        assert f"/{machine.pid}(3072M)" in second
        assert "?? %" in third


class TestNvitop:
    def test_shows_the_driver_and_every_gpu(self, machine: Machine, nvitop: str) -> None:
        driver = machine.fake.driver

        assert f"Driver Version: {driver.driver_version}" in nvitop
        assert nvitop.count(driver.gpu_name.removeprefix("NVIDIA ")) == 3
        first, second, third = re.findall(r"(\d+%|N/A)      Default \|", nvitop)
        assert (first, second, third) == ("73%", "4%", "N/A")

    def test_shows_memory_and_its_errors(self, machine: Machine, nvitop: str) -> None:
        mib = f"{used_bytes(machine.fake, 1) // MIB}MiB"
        (bus_line, memory_line) = re.findall(r"\|   1  .*\n.*", nvitop)[0].splitlines()

        assert mib in memory_line
        assert re.search(r"Disabled +5 \|", bus_line)

    def test_shows_the_instances_of_the_gpu_that_is_partitioned(
        self, machine: Machine, nvitop: str
    ) -> None:
        first, second = (line for line in nvitop.splitlines() if "GI/CI" in line)

        assert re.search(r"2:0 +1g\.10gb @ GI/CI: 7/0 \| +0B /", first)
        assert re.search(r"2:1 +1g\.10gb @ GI/CI: 8/0 \| +5120MiB /", second)

    def test_shows_the_process_and_its_share_of_the_sms(
        self, machine: Machine, nvitop: str
    ) -> None:
        rows = re.findall(rf"\| +([\d:]+) +{machine.pid} C +\S+ +(\S+) +(\S+) +(\S+) ", nvitop)

        assert rows[:2] == [("0", "7168MiB", "64", "10"), ("1", "3072MiB", "5", "10")]
        assert rows[2][:2] == ("2:1", "2048MiB")

    def test_shows_a_driver_with_longer_process_records_from_the_others(
        self, library_of: Callable[[DriverGeneration], Path], tmp_path: Path
    ) -> None:
        library = library_of(MIDDLE_DRIVER)
        with FakeNvml(tmp_path / "control", driver=MIDDLE_DRIVER) as fake:
            pids = os.getpid(), os.getppid()
            for gib, pid in enumerate(pids, start=1):
                fake.run(0, pid, memory_bytes=gib * GIB)
            machine = Machine(fake, fake_env(fake.path, library.parent), pids[0], ())

            printed = machine.output_of("nvitop", "--once", "--ascii")

        found = re.findall(r"\| +0 +(\d+) C +\S+ +(\S+) ", printed)
        assert sorted(found) == sorted([(str(pids[0]), "1024MiB"), (str(pids[1]), "2048MiB")])

"""``gpumon serve --stacks`` while the driver comes and goes, and with a hundred processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.builders.driver_faults import NOT_LOADED
from tests.daemon import RunningDaemon
from tests.fakenvml import codes
from tests.faults.faulty_machine import Machine, closes
from tests.processes import ending
from tests.waiting import wait_until

SLEEPS_IN_READ = "def read():\n    input()\n\nprint(flush=True)\nread()\n"
SOLE, SHARED = range(12), range(12, 16)


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def sleeping(processes: ExitStack, *words: str) -> subprocess.Popen[bytes]:
    """A process that does nothing until the test ends."""
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return processes.enter_context(ending(started))


def training(processes: ExitStack) -> int:
    """A Python that waits in a function of its own; its pid."""
    process = sleeping(processes, sys.executable, "-S", "-c", SLEEPS_IN_READ)
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


def idle_samples(daemon: RunningDaemon) -> list[int]:
    """How many stack samples are known of each GPU while it idles."""
    found: list[dict[str, Any] | None] = [gpu["stacks"] for gpu in daemon.report()["gpus"]]
    return [0 if stacks is None else stacks["idle_samples"] for stacks in found]


class TestADriver:
    def test_that_is_loaded_again_brings_new_samples(
        self, machine: Machine, processes: ExitStack
    ) -> None:
        machine.fake.wave(0, period_s=4.0, busy_ratio=0.5)
        machine.fake.run(0, training(processes))
        with machine.serve_well("--wait-for-source", "--stacks") as daemon:
            wait_until(lambda: idle_samples(daemon)[0] > 0, 60)
            machine.fake.fail_everything(codes.UNINITIALIZED)
            wait_until(lambda: daemon.get("/-/ready")[0] == 503)
            machine.fake.reload_driver()
            machine.fake.fail_everything(codes.SUCCESS)
            wait_until(lambda: daemon.get("/-/ready")[0] == 200)
            before = idle_samples(daemon)[0]

            wait_until(lambda: idle_samples(daemon)[0] > before, 60)

            assert closes(daemon.state())
            assert daemon.report()["gpus"][0]["pending_seconds"] < 10  # it waits for no sample

    def test_that_comes_later_is_no_obstacle(self, machine: Machine, processes: ExitStack) -> None:
        machine.fake.wave(0, period_s=4.0, busy_ratio=0.5)
        machine.fake.run(0, training(processes))
        NOT_LOADED.begin(machine.fake)
        with machine.serve("--wait-for-source", "--stacks") as daemon:
            wait_until(lambda: daemon.get("/-/ready")[0] == 503)
            NOT_LOADED.end(machine.fake)

            wait_until(lambda: daemon.get("/-/ready")[0] == 200)
            wait_until(lambda: idle_samples(daemon)[0] > 0, 60)

            assert closes(daemon.state())


@pytest.mark.soak
class TestSixteenGpusWithAHundredProcesses:
    def test_samples_in_turn_those_that_have_a_gpu_for_themselves(
        self, tmp_path: Path, fake_library: Path, processes: ExitStack
    ) -> None:
        machine = Machine(tmp_path, fake_library.parent, gpus=16)
        processes.callback(machine.fake.close)
        for slot in SOLE:
            machine.fake.wave(slot, period_s=6.0, busy_ratio=0.3)
            machine.fake.run(slot, training(processes))
        for slot in SHARED:
            machine.fake.wave(slot, period_s=6.0, busy_ratio=0.3)
            for _ in range(22):
                machine.fake.run(slot, sleeping(processes, "sleep", "600").pid)
        with machine.serve_well("--stacks") as daemon:
            wait_until(lambda: sum(map(bool, idle_samples(daemon))) >= 4, 90)

            found = idle_samples(daemon)
            assert max(found) <= 2  # the others come first
            assert [found[slot] for slot in SHARED] == [0] * 4
            assert closes(daemon.state())

"""What a running daemon does when the driver misbehaves: one case for each fault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, wait_until
from tests.fakenvml.build import NoCompilerError, build_fake, fake_env
from tests.fakenvml.control import FakeNvml
from tests.needs import missing

MISMATCH, NOT_SUPPORTED, LOST = 18, 3, 15
DRAIN = "nvmlDeviceGetSamples"
HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fake libnvidia-ml.so.1 is."""
    try:
        return build_fake(tmp_path_factory.mktemp("fakenvml")).parent
    except NoCompilerError as error:
        missing(str(error))
        raise


class Machine:
    """A machine with two fake GPUs on which gpumon can be started."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.fake = FakeNvml(folder / "gpus", gpus=2)
        for slot in (0, 1):
            self.fake.wave(slot, period_s=1.0, busy_ratio=0.7)
        self.environ = fake_env(folder / "gpus", library)

    def serve(self, *words: str, ready: bool = True) -> RunningDaemon:
        """A daemon on this machine, twice a second unless told otherwise."""
        period = () if "--period" in words else ("--period", "0.5")
        return RunningDaemon(self.folder, *period, *words, environ=self.environ, ready=ready)

    def gpumon(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "gpumon", *words],
            env={**self.environ, "GPUMON_RUNTIME_DIR": str(self.folder / "run")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, library: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, library)
    yield made
    made.fake.close()


def without_driver(folder: Path) -> dict[str, str]:
    """An environment in which no libnvidia-ml.so.1 can be found."""
    return {**os.environ, "LD_LIBRARY_PATH": "", "GPUMON_RUNTIME_DIR": str(folder / "run")}


def gpu(state: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = state["gpus"][index] if state["gpus"] else {"observed_ns": 0}
    return found


def closes(state: dict[str, Any]) -> bool:
    return all(
        one["busy_ns"] + sum(one["idle_ns"].values()) + one["pending_ns"] == one["observed_ns"]
        for one in state["gpus"]
    )


class TestFault01TheLibraryIsMissing:
    def test_ends_with_three_and_names_it(self, tmp_path: Path) -> None:
        for command in ("serve", "doctor"):
            words = [command] + (["--listen", "127.0.0.1:0"] if command == "serve" else [])
            ended = subprocess.run(
                [sys.executable, "-m", "gpumon", *words],
                env=without_driver(tmp_path),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

            assert ended.returncode == 3
            assert "libnvidia-ml.so.1" in ended.stdout + ended.stderr
            assert "Traceback" not in ended.stderr

    def test_serves_health_and_says_so_once_when_told_to_wait(self, tmp_path: Path) -> None:
        with RunningDaemon(
            tmp_path, "--wait-for-source", "--period", "0.3", environ=without_driver(tmp_path)
        ) as daemon:
            time.sleep(1.5)
            metrics = daemon.metrics()

            assert daemon.get("/-/healthy")[0] == 200
            assert daemon.get("/-/ready")[0] == 503
            assert metrics['gpumon_collector_success{collector="nvml"}'] == 0.0
            assert daemon.log().count("libnvidia-ml.so.1") == 1


class TestFault02TheDriverDoesNotMatchItsLibrary:
    def test_ends_with_three_and_says_reboot_or_reload(self, machine: Machine) -> None:
        machine.fake.fail("nvmlInitWithFlags", MISMATCH)

        ended = machine.gpumon("serve", "--listen", "127.0.0.1:0")

        assert ended.returncode == 3
        assert "reboot" in ended.stderr
        assert "reload" in ended.stderr

    def test_is_tried_again_when_told_to_wait(self, machine: Machine) -> None:
        machine.fake.fail("nvmlInitWithFlags", MISMATCH)
        with machine.serve("--wait-for-source") as daemon:
            wait_until(lambda: machine.fake.calls("nvmlInitWithFlags") >= 2)
            machine.fake.fail("nvmlInitWithFlags", 0)

            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)


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


class TestFault06ACallHangs:
    def test_pages_stay_up_all_gpus_are_unobserved_and_it_is_back_at_once(
        self, machine: Machine
    ) -> None:
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            threads = len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir()))
            machine.fake.delay(DRAIN, 60_000_000)
            wait_until(lambda: machine.fake.waiting(DRAIN) > 0)
            hung = daemon.wait_for(lambda state: not gpu(state)["present"])
            time.sleep(3.0)
            asked_s = time.monotonic()
            metrics = daemon.metrics()
            answered_s = time.monotonic() - asked_s
            still = daemon.state()

            assert answered_s < 1.0
            assert metrics['gpumon_collector_success{collector="nvml"}'] == 0.0
            assert daemon.get("/")[0] == 200
            assert still["monotonic_ns"] > hung["monotonic_ns"]
            assert gpu(still)["observed_ns"] == gpu(hung)["observed_ns"]
            assert len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir())) <= threads + 3

            machine.fake.delay(DRAIN, 0)
            released_ns = time.monotonic_ns()
            back = daemon.wait_for(
                lambda state: gpu(state)["observed_ns"] > gpu(still)["observed_ns"]
            )

            assert back["monotonic_ns"] - released_ns < 5_000_000_000
            assert closes(back)

    def test_a_daemon_that_hangs_still_stops(self, machine: Machine) -> None:
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            machine.fake.delay(DRAIN, 60_000_000)
            wait_until(lambda: machine.fake.waiting(DRAIN) > 0)
            daemon.process.terminate()

            assert daemon.process.wait(5) == 0


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


class TestFault10TheWallClockJumps:
    @pytest.mark.parametrize("by_us", [HOUR_US, -HOUR_US])
    def test_changes_no_sum(self, machine: Machine, by_us: int) -> None:
        # The fake stamps its samples with the wall clock, and that jumps; the
        # sums must go on as if nothing had happened.
        with machine.serve() as daemon:
            before = daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 1_000_000_000)
            machine.fake.stamps_jump(by_us)
            time.sleep(4.0)
            after = daemon.state()

            elapsed_ns = after["monotonic_ns"] - before["monotonic_ns"]
            observed_ns = gpu(after)["observed_ns"] - gpu(before)["observed_ns"]
            assert observed_ns <= elapsed_ns + 500_000_000
            assert observed_ns >= 0.5 * elapsed_ns
            assert closes(after)


class TestFault11TheDaemonIsStopped:
    def test_time_that_the_drivers_ring_no_longer_holds_is_not_observed(
        self, machine: Machine
    ) -> None:
        for slot in (0, 1):
            machine.fake.gpu(slot).ring_depth = 12  # two seconds
        with machine.serve() as daemon:
            before = daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            missed = daemon.metrics()["gpumon_samples_missed_total"]
            daemon.process.send_signal(signal.SIGSTOP)
            time.sleep(6.0)
            daemon.process.send_signal(signal.SIGCONT)
            after = daemon.wait_for(
                lambda state: gpu(state)["observed_ns"] > gpu(before)["observed_ns"]
            )
            after = daemon.wait_for(
                lambda state: state["monotonic_ns"] > after["monotonic_ns"] + 1_000_000_000
            )
            metrics = daemon.metrics()

            elapsed_ns = after["monotonic_ns"] - before["monotonic_ns"]
            unobserved_ns = elapsed_ns - (gpu(after)["observed_ns"] - gpu(before)["observed_ns"])
            assert 3_000_000_000 < unobserved_ns < 6_500_000_000
            assert metrics["gpumon_samples_missed_total"] - missed >= 8
            assert closes(after)


class TestFault12TheSamplerIsTooSlowForItsPeriod:
    def test_deadlines_are_missed_and_counted_and_never_made_up_for(self, machine: Machine) -> None:
        machine.fake.delay(DRAIN, 100_000)
        with machine.serve("--period", "0.1") as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 1_000_000_000)
            machine.fake.forget_calls()
            first = daemon.state()
            time.sleep(4.0)
            last = daemon.state()
            calls = machine.fake.calls(DRAIN)
            metrics = daemon.metrics()

            # Two GPUs at 100 ms each leave room for five reads a second.
            assert calls <= 2 * 5 * 4.5 + 2
            assert metrics["gpumon_samples_missed_total"] > 5
            observed_ns = gpu(last)["observed_ns"] - gpu(first)["observed_ns"]
            elapsed_ns = last["monotonic_ns"] - first["monotonic_ns"]
            assert observed_ns == pytest.approx(elapsed_ns, rel=0.15)


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

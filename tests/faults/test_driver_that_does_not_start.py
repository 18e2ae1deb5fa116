"""What a daemon does where the driver is not there, or not the one its library wants."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.daemon import RunningDaemon
from tests.fakenvml.control import DRIVER_NOT_LOADED, VERSION_MISMATCH
from tests.faults.faulty_machine import Machine, gpu
from tests.needs import without_driver
from tests.patience import PATIENCE_S, wait_until
from tests.serving import free_port


class TestFault01TheLibraryIsMissing:
    def test_ends_with_three_and_names_it(self, tmp_path: Path) -> None:
        for command in ("serve", "doctor"):
            words = [command] + (["--listen", "127.0.0.1:0"] if command == "serve" else [])
            ended = subprocess.run(
                [sys.executable, "-m", "gpumon", *words],
                env={**without_driver(), "GPUMON_RUNTIME_DIR": str(tmp_path / "run")},
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
            tmp_path, "--wait-for-source", "--period", "0.3", environ=without_driver()
        ) as daemon:
            wait_until(lambda: "libnvidia-ml.so.1" in daemon.log())
            time.sleep(1.5)  # it goes on trying
            metrics = daemon.metrics()

            assert daemon.get("/-/healthy")[0] == 200
            assert daemon.get("/-/ready")[0] == 503
            assert metrics['gpumon_collector_success{collector="nvml"}'] == 0.0
            assert daemon.log().count("libnvidia-ml.so.1") == 1


class TestFault02TheDriverDoesNotMatchItsLibrary:
    def test_ends_with_three_and_says_reboot_or_reload(self, machine: Machine) -> None:
        machine.fake.fail("nvmlInitWithFlags", VERSION_MISMATCH)

        ended = machine.gpumon("serve", "--listen", "127.0.0.1:0")

        assert ended.returncode == 3
        assert "reboot" in ended.stderr
        assert "reload" in ended.stderr

    def test_that_took_its_place_in_mid_run_ends_the_daemon_which_only_a_new_process_can_cure(
        self, machine: Machine
    ) -> None:
        with machine.serve("--wait-for-source") as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            machine.fake.fail("nvmlInitWithFlags", VERSION_MISMATCH)
            machine.fake.reload_driver()

            assert daemon.process.wait(20) == 3

            assert "gpumon: the NVIDIA driver was replaced" in daemon.log().splitlines()[-1]
            assert "start gpumon again" in daemon.log()

    def test_is_tried_again_when_told_to_wait(self, machine: Machine) -> None:
        machine.fake.fail("nvmlInitWithFlags", VERSION_MISMATCH)
        with machine.serve("--wait-for-source") as daemon:
            wait_until(lambda: machine.fake.calls("nvmlInitWithFlags") >= 2)
            machine.fake.fail("nvmlInitWithFlags", 0)

            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)


class TestADriverThatTakesLongToStart:
    """As it does with persistence mode off: each opening loads the firmware of every board."""

    def test_is_waited_for_on_one_thread_while_health_is_answered(self, machine: Machine) -> None:
        machine.fake.delay("nvmlInitWithFlags", 60_000_000)
        with machine.serve("--wait-for-source", "--period", "0.1") as daemon:
            wait_until(lambda: machine.fake.waiting("nvmlInitWithFlags") > 0)
            threads = daemon.thread_count()
            time.sleep(2.0)

            assert daemon.get("/-/healthy")[0] == 200
            assert daemon.get("/-/ready")[0] == 503
            assert daemon.metrics()['gpumon_collector_success{collector="nvml"}'] == 0.0
            assert daemon.thread_count() <= threads + 2  # web requests
            assert machine.fake.calls("nvmlInitWithFlags") == 1
            machine.fake.delay("nvmlInitWithFlags", 0)
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            assert daemon.get("/-/ready")[0] == 200

    def test_does_not_keep_health_waiting_even_if_nobody_said_to_wait(
        self, machine: Machine
    ) -> None:
        machine.fake.delay("nvmlInitWithFlags", 60_000_000)
        address = f"127.0.0.1:{free_port()}"
        with machine.serve("--listen", address, ready=False) as daemon:
            wait_until(lambda: machine.fake.waiting("nvmlInitWithFlags") > 0)

            with urllib.request.urlopen(
                f"http://{address}/-/healthy", timeout=PATIENCE_S
            ) as answer:
                assert answer.status == 200

            machine.fake.delay("nvmlInitWithFlags", 0)
            wait_until(daemon.state_file.exists)


class TestADriverThatIsLoadedLater:
    def test_is_picked_up_by_who_waits_and_said_once(self, machine: Machine) -> None:
        machine.fake.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
        with machine.serve("--wait-for-source") as daemon:
            wait_until(lambda: machine.fake.calls("nvmlInitWithFlags") >= 2)
            assert daemon.get("/-/ready")[0] == 503
            machine.fake.fail("nvmlInitWithFlags", 0)

            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)

            assert daemon.get("/-/ready")[0] == 200
            assert daemon.log().count("modprobe nvidia") == 1

    def test_is_named_by_the_doctor_with_what_to_do(self, machine: Machine) -> None:
        machine.fake.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)

        seen = machine.gpumon("doctor")

        assert seen.returncode == 3
        assert "the NVIDIA driver is not loaded" in seen.stdout
        assert "modprobe nvidia" in seen.stdout

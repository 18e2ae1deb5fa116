"""What a daemon does where the driver is not there, or not the one its library wants."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path

import pytest

from tests.builders.driver_faults import INIT, NOT_LOADED, REPLACED, DriverFault
from tests.daemon import RunningDaemon
from tests.faults.faulty_machine import COLLECTOR_SUCCESS, Machine, gpu
from tests.needs import without_driver
from tests.patience import PATIENCE_S, wait_until
from tests.serving import free_port

SERVE, DOCTOR = ("serve", "--listen", "127.0.0.1:0"), ("doctor",)


class TestAMissingLibrary:
    @pytest.mark.parametrize("words", [SERVE, DOCTOR])
    def test_ends_everybody_with_three_and_is_named(
        self, machine: Machine, words: tuple[str, ...]
    ) -> None:
        machine.environ = without_driver()

        ended = machine.gpumon(*words)

        assert ended.returncode == 3
        assert "libnvidia-ml.so.1" in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr

    def test_is_reported_once_where_who_waits_serves_health(self, tmp_path: Path) -> None:
        with RunningDaemon(
            tmp_path, "--wait-for-source", "--period", "0.3", environ=without_driver()
        ) as daemon:
            wait_until(lambda: "libnvidia-ml.so.1" in daemon.log())
            time.sleep(1.5)  # it goes on trying

            assert daemon.get("/-/healthy")[0] == 200
            assert daemon.get("/-/ready")[0] == 503
            assert daemon.metrics()[COLLECTOR_SUCCESS] == 0.0
            assert daemon.log().count("libnvidia-ml.so.1") == 1


class TestADriverThatCannotBeOpened:
    @pytest.mark.parametrize(("fault", "words"), [(REPLACED, SERVE), (NOT_LOADED, DOCTOR)])
    def test_ends_who_does_not_wait_with_three_and_what_to_do(
        self, machine: Machine, fault: DriverFault, words: tuple[str, ...]
    ) -> None:
        fault.begin(machine.fake)

        ended = machine.gpumon(*words)

        assert ended.returncode == 3
        assert re.search(fault.refuses, " ".join((ended.stdout + ended.stderr).split()))

    @pytest.mark.parametrize("fault", [REPLACED, NOT_LOADED], ids=str)
    def test_is_reported_once_and_picked_up_by_who_waits(
        self, machine: Machine, fault: DriverFault
    ) -> None:
        fault.begin(machine.fake)
        with machine.serve("--wait-for-source") as daemon:
            wait_until(lambda: machine.fake.calls(INIT) >= 2)
            assert daemon.get("/-/ready")[0] == 503
            fault.end(machine.fake)

            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)

            assert daemon.get("/-/ready")[0] == 200
            assert len(re.findall(fault.refuses, daemon.log())) == 1

    def test_any_more_ends_the_daemon_where_only_a_new_process_is_a_cure(
        self, machine: Machine
    ) -> None:
        with machine.serve_well("--wait-for-source") as daemon:
            REPLACED.begin(machine.fake)

            assert daemon.process.wait(20) == 3
            assert re.search(REPLACED.says, daemon.log().splitlines()[-1])


class TestADriverThatTakesLongToStart:
    """As it does with persistence mode off: each opening loads the firmware of every board."""

    def test_is_waited_for_on_one_thread_while_health_is_answered(self, machine: Machine) -> None:
        machine.fake.delay(INIT, 60_000_000)
        with machine.serve("--wait-for-source", "--period", "0.1") as daemon:
            wait_until(lambda: machine.fake.waiting(INIT) > 0)
            threads = daemon.thread_count()
            time.sleep(2.0)

            assert daemon.get("/-/healthy")[0] == 200
            assert daemon.get("/-/ready")[0] == 503
            assert daemon.metrics()[COLLECTOR_SUCCESS] == 0.0
            assert daemon.thread_count() <= threads + 2  # web requests
            assert machine.fake.calls(INIT) == 1
            machine.fake.delay(INIT, 0)
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            assert daemon.get("/-/ready")[0] == 200

    def test_does_not_keep_health_waiting_even_if_no_one_reported_to_wait(
        self, machine: Machine
    ) -> None:
        machine.fake.delay(INIT, 60_000_000)
        address = f"127.0.0.1:{free_port()}"
        with machine.serve("--listen", address, ready=False) as daemon:
            wait_until(lambda: machine.fake.waiting(INIT) > 0)

            with urllib.request.urlopen(
                f"http://{address}/-/healthy", timeout=PATIENCE_S
            ) as answer:
                assert answer.status == 200

            machine.fake.delay(INIT, 0)
            wait_until(daemon.state_file.exists)

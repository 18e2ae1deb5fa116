"""What a daemon counts when calls hang, and when it is stopped."""

from __future__ import annotations

import signal
import time

import pytest

from tests.builders.driver_faults import DRAIN
from tests.faults.faulty_machine import (
    COLLECTOR_SUCCESS,
    Machine,
    closes,
    elapsed_ns,
    gpu,
    observed_ns,
)
from tests.patience import wait_until

MISSED = "gpumon_samples_missed_total"
HANGS = "has not returned"
LIST, WAIT = "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlEventSetWait_v2"


class TestACallThatHangs:
    @pytest.mark.measured
    def test_leaves_pages_up_and_gpus_unobserved_and_each_is_back_at_once_unless_it_was_lost(
        self, machine: Machine
    ) -> None:
        fake = machine.fake
        with machine.serve_well() as daemon:
            threads = daemon.thread_count()
            machine.hang(DRAIN)
            hung = daemon.wait_for(lambda state: not gpu(state)["present"])
            fake.lose(0)
            time.sleep(3.0)
            asked_s = time.monotonic()
            metrics = daemon.metrics()
            answered_s = time.monotonic() - asked_s
            still = daemon.state()

            assert answered_s < 1.0
            assert metrics[COLLECTOR_SUCCESS] == 0.0
            assert daemon.get("/")[0] == 200
            assert elapsed_ns(hung, still) > 0
            assert observed_ns(hung, still) == observed_ns(hung, still, 1) == 0
            assert not gpu(still, 1)["present"]
            assert daemon.thread_count() <= threads + 3

            fake.delay(DRAIN, 0)
            released_ns = time.monotonic_ns()
            back = daemon.wait_for(lambda state: observed_ns(still, state, 1) > 0)
            assert back["monotonic_ns"] - released_ns < 5_000_000_000
            assert "(NVML 15)" in gpu(back)["error"]
            assert observed_ns(still, back) == 0
            fake.find(0)
            back = daemon.wait_for(lambda state: observed_ns(still, state) > 0)
            assert closes(back)

    @pytest.mark.measured
    def test_of_what_changes_slowly_costs_no_tick_and_no_observed_time(
        self, machine: Machine
    ) -> None:
        machine.fake.run(0, 4000)
        with machine.serve_well() as daemon:
            machine.hang(LIST)
            before, missed = daemon.state(), daemon.metrics()[MISSED]
            threads = daemon.thread_count()
            time.sleep(6.0)
            assert machine.fake.waiting(LIST) == 1
            after = daemon.state()
            assert daemon.metrics()[MISSED] == missed
            wait_until(lambda: daemon.thread_count() <= threads)  # that of the request ends, too
            for index in (0, 1):
                assert abs(observed_ns(before, after, index) - elapsed_ns(before, after)) < 0.4e9
                assert gpu(after, index)["present"]
            wait_until(lambda: HANGS in daemon.log())
            log = daemon.log()
        assert log.count(HANGS) == 1

    @pytest.mark.measured
    def test_keeps_no_daemon_from_stopping(self, machine: Machine) -> None:
        with machine.serve_well() as daemon:
            for function in (WAIT, LIST, DRAIN):
                machine.hang(function)
            daemon.process.terminate()

            assert daemon.process.wait(4) == 0


class TestADaemonThatIsStopped:
    def test_has_not_observed_the_time_that_the_drivers_ring_no_longer_holds(
        self, machine: Machine
    ) -> None:
        for slot in (0, 1):
            machine.fake.gpu(slot).ring_depth = 12  # two seconds
        with machine.serve_well() as daemon:
            before, missed = daemon.state(), daemon.metrics()[MISSED]
            daemon.process.send_signal(signal.SIGSTOP)
            time.sleep(6.0)
            daemon.process.send_signal(signal.SIGCONT)
            woken = daemon.wait_for(lambda state: observed_ns(before, state) > 0)
            after = daemon.wait_for(lambda state: elapsed_ns(woken, state) > 1e9)

            unobserved_ns = elapsed_ns(before, after) - observed_ns(before, after)
            assert 3_000_000_000 < unobserved_ns < 6_500_000_000
            assert daemon.metrics()[MISSED] - missed >= 8
            assert closes(after)

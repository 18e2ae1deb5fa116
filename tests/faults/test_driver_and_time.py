"""What a daemon counts when calls hang or are slow, when its clock jumps and when it is stopped."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.faulty_machine import DRAIN, Machine, closes, gpu
from tests.patience import wait_until

HOUR_US = 3_600_000_000


class TestFault06ACallHangs:
    @pytest.mark.measured
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

    @pytest.mark.measured
    def test_a_daemon_that_hangs_still_stops(self, machine: Machine) -> None:
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            machine.fake.delay(DRAIN, 60_000_000)
            wait_until(lambda: machine.fake.waiting(DRAIN) > 0)
            daemon.process.terminate()

            assert daemon.process.wait(5) == 0


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


def observed_ratio(first: dict[str, Any], last: dict[str, Any]) -> float:
    """How much of the time between two states was observed."""
    observed_ns: int = gpu(last)["observed_ns"] - gpu(first)["observed_ns"]
    elapsed_ns: int = last["monotonic_ns"] - first["monotonic_ns"]
    return observed_ns / elapsed_ns


class TestFault12TheSamplerIsTooSlowForItsPeriod:
    def test_deadlines_are_missed_and_counted_and_never_made_up_for(self, machine: Machine) -> None:
        machine.fake.delay(DRAIN, 150_000)
        with machine.serve("--period", "0.1") as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 1_000_000_000)
            machine.fake.forget_calls()
            first = daemon.state()
            time.sleep(8.0)  # a second that a busy machine holds everything up is within the bounds
            calls = machine.fake.calls(DRAIN)
            metrics = daemon.metrics()
            last = daemon.wait_for(lambda state: observed_ratio(first, state) > 0.85)

            # Two GPUs at 150 ms each leave room for 3.3 reads a second.
            assert calls <= 2 * 3.4 * 8.5 + 2
            assert metrics["gpumon_samples_missed_total"] > 5
            assert observed_ratio(first, last) < 1.15
            assert daemon.log().count("nvml: ") <= 1
            assert "well again" not in daemon.log()

"""``/-/ready`` of a real daemon: 200 while a GPU can be read, 503 while none can."""

from __future__ import annotations

from tests.daemon import RunningDaemon
from tests.fakenvml import codes
from tests.faults.faulty_machine import Machine
from tests.patience import wait_until


def ready(daemon: RunningDaemon) -> int:
    return daemon.get("/-/ready")[0]


def test_follows_a_driver_that_is_unloaded_and_loaded_again(machine: Machine) -> None:
    with machine.serve_well("--wait-for-source") as daemon:
        before = ready(daemon)
        machine.fake.fail_everything(codes.UNINITIALIZED)
        wait_until(lambda: ready(daemon) == 503)
        _, sentence = daemon.get("/-/ready")
        health, _ = daemon.get("/-/healthy")

        machine.fake.reload_driver()
        machine.fake.fail_everything(codes.SUCCESS)
        wait_until(lambda: ready(daemon) == 200)

    assert (before, health) == (200, 200)
    assert sentence.startswith("not ready: the NVIDIA driver ")


def test_stays_with_one_gpu_of_two_and_goes_with_the_other(machine: Machine) -> None:
    with machine.serve_well() as daemon:
        machine.fake.lose(0)
        daemon.wait_for(lambda state: not state["gpus"][0]["present"])
        one_lost = ready(daemon)

        machine.fake.lose(1)
        wait_until(lambda: ready(daemon) == 503)
        machine.fake.find(1)
        wait_until(lambda: ready(daemon) == 200)

    assert one_lost == 200

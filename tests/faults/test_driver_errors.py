"""What a daemon makes of the errors that the driver reports."""

from __future__ import annotations

from tests.faults.faulty_machine import Machine, gpu
from tests.patience import wait_until

WAIT = "nvmlEventSetWait_v2"


class TestAnXid:
    def test_is_logged_once_and_counted_and_a_wait_that_hangs_keeps_nobody(
        self, machine: Machine
    ) -> None:
        xid_of_0, xid_of_1 = (
            f'gpumon_gpu_xid_errors_total{{uuid="{machine.fake.uuid(slot)}",xid="{xid}"}}'
            for slot, xid in ((0, 31), (1, 79))
        )
        with machine.serve() as daemon:
            daemon.wait_for(lambda state: gpu(state)["observed_ns"] > 0)
            machine.fake.report_xid(0, 31)
            machine.fake.report_xid(0, 31)
            machine.fake.report_xid(1, 79)
            wait_until(lambda: daemon.metrics().get(xid_of_0) == 2.0)
            machine.fake.lose(1)
            daemon.wait_for(lambda state: not gpu(state, 1)["present"])
            assert daemon.metrics()[xid_of_1] == 1.0

            machine.fake.delay(WAIT, 60_000_000)
            wait_until(lambda: machine.fake.waiting(WAIT) > 0)
            daemon.process.terminate()
            assert daemon.process.wait(5) == 0
            said = daemon.log()

        assert said.count("XID 31: ") == 1
        assert said.count("XID 79: ") == 1

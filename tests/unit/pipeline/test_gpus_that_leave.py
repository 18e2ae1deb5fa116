"""GPUs and MIG instances that the source ceases to list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.phase import IdleCause
from gpumon.core.ring_format.events import KEEP_ENDED_NS
from gpumon.core.sample import BusySample, Device, FieldFault, Frame, GpuSample
from gpumon.core.state import GpuState, MonitorState
from tests.builders.monitor import monitor, reading
from tests.builders.time import s

PARENT = Device(uuid="GPU-0", index=0, mig_enabled=True)
OTHER = Device(uuid="GPU-1", index=1)
INSTANCE = Device(uuid="MIG-a", index=0, parent_uuid="GPU-0", mig_index=0)


class Machine:
    """A monitor, and the GPUs that are listed second by second."""

    def __init__(self) -> None:
        self.now_ns = s(1000)
        self._monitor = monitor()

    def second(
        self,
        *devices: Device,
        level: float = 1.0,
        error: str | None = None,
        faults: tuple[FieldFault, ...] = (),
    ) -> MonitorState:
        start_ns, self.now_ns = self.now_ns, self.now_ns + s(1)
        busy = () if error else (BusySample(start_ns, self.now_ns, level),)
        gpus = tuple(
            GpuSample(device=one, busy=() if one.mig_enabled else busy, error=error, faults=faults)
            for one in devices
        )
        return self._monitor.ingest(reading(self.now_ns, Frame(self.now_ns, gpus)))


@pytest.fixture
def machine() -> Machine:
    return Machine()


def gpu(state: MonitorState, uuid: str) -> GpuState:
    return next(one for one in state.gpus if one.device.uuid == uuid)


class TestAnInstanceThatIsDestroyed:
    @pytest.mark.parametrize("error", [None, "it answers Unknown Error (999)"])
    def test_is_absent_at_once_and_runs_no_job_and_that_is_no_error(
        self, machine: Machine, error: str | None
    ) -> None:
        faults = (FieldFault("memory", "no answer", machine.now_ns),)
        machine.second(PARENT, INSTANCE)
        waiting = gpu(machine.second(PARENT, INSTANCE, level=0.0), "MIG-a").totals
        failing = machine.second(INSTANCE, error=error, faults=faults, level=0.0)

        state = machine.second(PARENT, OTHER)

        gone = gpu(state, "MIG-a")
        assert (gone.present, gone.listed, gone.error) == (False, False, None)
        assert (waiting.pending_ns, gone.totals.pending_ns) == (s(1), 0)
        assert gone.totals.idle_ns == {IdleCause.NOT_IN_USE: s(1 if error else 2)}
        assert [one.collectors[0].success for one in (failing, state)] == [False, True]

    def test_is_listed_for_15_minutes_and_then_forgotten(self, machine: Machine) -> None:
        machine.second(PARENT, INSTANCE, OTHER)
        machine.second(PARENT, OTHER)
        machine.now_ns += KEEP_ENDED_NS - s(1)
        kept = machine.second(PARENT, OTHER)
        machine.now_ns += s(1)

        assert [one.device.uuid for one in kept.gpus] == ["GPU-0", "MIG-a", "GPU-1"]
        assert [one.device.uuid for one in machine.second(PARENT, OTHER).gpus] == ["GPU-0", "GPU-1"]

    def test_leaves_nothing_but_its_errors_however_often_it_is_recreated(
        self, machine: Machine
    ) -> None:
        machine.second(PARENT, INSTANCE)
        machine.second(PARENT, INSTANCE, level=1.5)
        for number in range(60):
            machine.now_ns += s(60)
            state = machine.second(PARENT, replace(INSTANCE, uuid=f"MIG-{number}"))

        assert len(state.gpus) <= 1 + 1 + 15
        assert sum(one.present for one in state.gpus) == 2
        assert state.collectors[0].errors_total == 1


class TestAGpuThatIsTakenOut:
    def test_stays_in_the_report_and_goes_on_where_it_was_when_it_is_back(
        self, machine: Machine
    ) -> None:
        machine.second(PARENT, OTHER)
        machine.second(PARENT)
        machine.now_ns += 2 * KEEP_ENDED_NS
        away = gpu(machine.second(PARENT), "GPU-1")

        back = gpu(machine.second(PARENT, replace(OTHER, index=5)), "GPU-1")

        assert (away.present, away.listed, away.totals.busy_ns) == (False, False, s(1))
        assert (back.present, back.listed, back.totals.busy_ns) == (True, True, s(2))
        assert back.device.index == 5

    def test_after_it_was_lost_is_an_error_no_longer(self, machine: Machine) -> None:
        machine.second(OTHER)
        lost = machine.second(OTHER, error="the GPU is lost")
        machine.second(OTHER, PARENT)

        state = machine.second(PARENT)

        assert gpu(lost, "GPU-1").error is not None
        assert gpu(state, "GPU-1").error is None
        assert state.collectors[0].success

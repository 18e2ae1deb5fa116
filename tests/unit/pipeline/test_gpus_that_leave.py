"""Specification of GPUs and MIG instances that the source ceases to list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.phase import IdleCause
from gpumon.core.ring_format.events import KEEP_ENDED_NS
from gpumon.core.sample import BusySample, Device, FieldFault, Frame, GpuSample
from gpumon.core.state import GpuState, MonitorState
from tests.builders.monitor import monitor, reading
from tests.builders.time import s

WHOLE = Device(uuid="GPU-0", index=0, mig_enabled=True)
OTHER = Device(uuid="GPU-1", index=1)
PART = Device(uuid="MIG-a", index=0, parent_uuid="GPU-0", mig_index=0)


class Machine:
    """A monitor that is reported which GPUs are listed, second by second."""

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

    def hang(self, seconds: int) -> MonitorState:
        """No frame for so long."""
        self.now_ns += s(seconds)
        return self._monitor.ingest(reading(self.now_ns))


@pytest.fixture
def machine() -> Machine:
    return Machine()


def gpu(state: MonitorState, uuid: str) -> GpuState:
    return next(one for one in state.gpus if one.device.uuid == uuid)


class TestAnInstanceThatIsDestroyed:
    def test_is_absent_at_once_and_that_is_no_error(self, machine: Machine) -> None:
        machine.second(WHOLE, PART, OTHER)

        state = machine.second(WHOLE, OTHER)

        gone = gpu(state, "MIG-a")
        assert (gone.present, gone.listed, gone.error) == (False, False, None)
        assert gone.totals.busy_ns == s(1)
        assert state.collectors[0].success

    @pytest.mark.parametrize("error", [None, "it answers Unknown Error (999)"])
    def test_has_no_field_any_more_that_could_fail(
        self, machine: Machine, error: str | None
    ) -> None:
        faults = (FieldFault("memory", "no answer", machine.now_ns),)
        failing = machine.second(PART, error=error, faults=faults)
        assert not failing.collectors[0].success

        assert machine.second(WHOLE, OTHER).collectors[0].success

    def test_runs_no_job_any_more(self, machine: Machine) -> None:
        machine.second(WHOLE, PART)
        waiting = gpu(machine.second(WHOLE, PART, level=0.0), "MIG-a").totals

        gone = gpu(machine.second(WHOLE), "MIG-a").totals

        assert waiting.pending_ns == s(1)
        assert gone.pending_ns == 0
        assert gone.idle_ns == {IdleCause.NOT_IN_USE: s(1)}

    def test_is_listed_for_15_minutes_and_then_forgotten(self, machine: Machine) -> None:
        machine.second(WHOLE, PART, OTHER)
        machine.second(WHOLE, OTHER)
        machine.now_ns += KEEP_ENDED_NS - s(1)
        kept = machine.second(WHOLE, OTHER)
        machine.now_ns += s(1)

        assert [one.device.uuid for one in kept.gpus] == ["GPU-0", "MIG-a", "GPU-1"]
        assert [one.device.uuid for one in machine.second(WHOLE, OTHER).gpus] == ["GPU-0", "GPU-1"]

    def test_takes_no_error_back_when_it_is_forgotten(self, machine: Machine) -> None:
        machine.second(WHOLE, PART)
        refused = machine.second(WHOLE, PART, level=1.5).collectors[0].errors_total
        machine.second(WHOLE)
        machine.now_ns += KEEP_ENDED_NS

        state = machine.second(WHOLE)

        assert [one.device.uuid for one in state.gpus] == ["GPU-0"]
        assert state.collectors[0].errors_total == refused == 1

    def test_leaves_nothing_behind_however_often_others_are_made_in_its_place(
        self, machine: Machine
    ) -> None:
        for number in range(200):
            machine.now_ns += s(60)
            state = machine.second(WHOLE, replace(PART, uuid=f"MIG-{number}"))

        assert len(state.gpus) <= 1 + 1 + 15
        assert sum(one.present for one in state.gpus) == 2


class TestAGpuThatIsTakenOut:
    def test_stays_in_the_report_and_goes_on_where_it_was_when_it_is_back(
        self, machine: Machine
    ) -> None:
        machine.second(WHOLE, OTHER)
        machine.second(WHOLE)
        machine.now_ns += 2 * KEEP_ENDED_NS
        away = gpu(machine.second(WHOLE), "GPU-1")

        back = gpu(machine.second(WHOLE, replace(OTHER, index=5)), "GPU-1")

        assert (away.present, away.listed, away.totals.busy_ns) == (False, False, s(1))
        assert (back.present, back.listed, back.totals.busy_ns) == (True, True, s(2))
        assert back.device.index == 5

    def test_after_it_was_lost_is_an_error_no_longer(self, machine: Machine) -> None:
        machine.second(OTHER)
        lost = machine.second(OTHER, error="the GPU is lost")
        machine.second(OTHER, WHOLE)

        state = machine.second(WHOLE)

        assert gpu(lost, "GPU-1").error is not None
        assert gpu(state, "GPU-1").error is None
        assert state.collectors[0].success

    @pytest.mark.parametrize("seconds", [1, 30])
    def test_is_another_thing_than_a_driver_that_hangs(
        self, machine: Machine, seconds: int
    ) -> None:
        machine.second(OTHER)

        silent = gpu(machine.hang(seconds), "GPU-1")

        assert silent.listed
        assert silent.present is (seconds == 1)

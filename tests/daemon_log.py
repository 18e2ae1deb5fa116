"""A daemon's log, tick by tick."""

from __future__ import annotations

import logging

import pytest

from gpumon.cli.daemon_log import CollectorLog, FieldLog, XidLog
from gpumon.core.sample import FieldFault
from gpumon.core.state import CollectorState, GpuState
from tests.builders.driver import DriverStory
from tests.builders.time import s


class DaemonLog:
    """All that ``gpumon serve`` logs of collectors and GPUs."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "gpumon")
        log = logging.getLogger("gpumon")
        self._caplog, self._now_s = caplog, 0
        self._collectors, self.fields, self._xids = CollectorLog(log), FieldLog(log), XidLog(log)

    def lines(self, *states: CollectorState) -> list[str]:
        """The lines after these states of a collector, one a tick."""
        self._caplog.clear()
        for state in states:
            self._collectors.follow([state], s(self._now_s))
            self._now_s += 1
        return list(self._caplog.messages)

    def saw(self, *gpus: GpuState, times: int = 1) -> list[str]:
        """The lines after so many ticks with these GPUs."""
        self._caplog.clear()
        for _ in range(times):
            self.fields.follow(gpus, s(self._now_s))
            self._xids.follow(gpus, s(self._now_s))
            self._now_s += 1
        return list(self._caplog.messages)

    def followed(self, story: DriverStory, *, ticks: int) -> list[str]:
        """The lines after the next ticks of a story."""
        self._caplog.clear()
        for _ in range(ticks):
            state = story.tick()
            self.fields.follow(state.gpus, state.taken_at_ns)
            self._collectors.follow(
                state.collectors, state.taken_at_ns, logged=self.fields.sentences
            )
            self._xids.follow(state.gpus, state.taken_at_ns)
        return list(self._caplog.messages)


def failing(gpu: GpuState, *faults: FieldFault) -> GpuState:
    """The same GPU with these faults."""
    assert gpu.latest is not None
    return gpu._replace(latest=gpu.latest._replace(faults=faults))

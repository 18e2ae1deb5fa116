"""What the daemon sees of simulated training loops: never more of a cause than there is."""

from __future__ import annotations

from random import Random

import pytest

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.seen_pauses import PlacedSample
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample, Device, Frame, GpuSample, ProcessSample
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.stack import ProcessStack, StackSample
from gpumon.sources.stacks.stack_sampler import StackSampler
from tests.builders.time import HandClock, s
from tests.unit.pipeline.simulated_loops import (
    INPUT,
    LONG_WINDOW,
    SAVE,
    WINDOW,
    Loop,
    SimulatedLoop,
    bursty,
    in_phase,
    mixed,
)
from tests.waiting import until

GPU = GpuSample(device=Device(uuid="GPU-0", index=0), processes=(ProcessSample(7, None, uid=0),))
WATCHED_S = 200


class Reader:
    """Reads where the loop is, in 20 ms."""

    def __init__(self, clock: HandClock, loop: SimulatedLoop) -> None:
        self._clock, self._loop = clock, loop
        self.cpu_seconds = 0.0

    def read(self, pid: int) -> StackSample:
        began_ns = self._clock.now_ns
        self.cpu_seconds += 0.009
        cause = self._loop.cause_at(began_ns / s(1))
        process = ProcessStack(pid, None, cause.name if cause else "", ())
        return StackSample(began_ns, began_ns + s(0.02), pid, (process,))


class Daemon:
    """Its sampler and a ledger, which read the loop twice a second."""

    def __init__(self, loop: SimulatedLoop, window_s: float) -> None:
        self.clock, self.loop, self.window_s = HandClock(0.0), loop, window_s
        self.ledger, self.drained_s = GpuLedger(), 0.0
        self.sampler = StackSampler(Reader(self.clock, loop), self.clock, lambda _: None)

    def run(self) -> GpuTotals:
        random = Random(1)
        for tick in range(1, WATCHED_S):
            self.look(tick - 1 + random.uniform(0.3, 0.7))
            self.clock.now_ns = s(tick)
            self.drain()
            self.look(tick)
        self.sampler.close()
        return self.ledger.snapshot()

    def look(self, at_s: float) -> None:
        self.clock.now_ns = s(at_s)
        busy_s = self.loop.seconds_of(None, max(0.0, at_s - self.window_s), at_s)
        present = (("GPU-0", busy_s / self.window_s),)
        frame = Frame(taken_at_ns=self.clock.now_ns, gpus=(GPU,), present_ratios=present)
        self.sampler.request_due(frame, ())
        assert until(self.has_collected_all, every_s=0.0002)

    def has_collected_all(self) -> bool:
        reading = self.sampler.collect()
        for _, sample in reading.samples:
            name = sample.processes[0].program
            place = Place(IdleCause[name] if name else None)
            self.ledger.note_stack_sample(PlacedSample(sample.start_ns, sample.end_ns, place))
        return not reading.pending_from_ns

    def drain(self) -> None:
        while self.drained_s + self.window_s <= self.clock.now_ns / s(1):
            start_s, end_s = self.drained_s, self.drained_s + self.window_s
            ratio = min(1.0, self.loop.seconds_of(None, start_s, end_s) / self.window_s)
            self.ledger.observe([BusySample(s(start_s), s(end_s), ratio)])
            self.drained_s = end_s


@pytest.mark.parametrize("window_s", [WINDOW, LONG_WINDOW])
@pytest.mark.parametrize(
    "loop",
    [
        mixed(1.0, 1.0, 1.0), mixed(10.0, 10.0, 10.0), mixed(0.3, 5.0, 0.5), mixed(1.0, 10.0, 1.0),
        mixed(10.0, 1.0, 1.0), bursty(0.3), bursty(1.0), bursty(10.0), in_phase(2.0, 1.5),
        in_phase(5.0, 4.0), in_phase(20.0, 16.0), in_phase(60.0, 50.0),
    ],
    ids=[
        "1 s", "10 s", "short input", "long checkpoints", "long input", "bursty 0.3 s",
        "bursty 1 s", "bursty 10 s", "2 s of two causes", "5 s of two causes",
        "20 s of two causes", "60 s of two causes",
    ],
)  # fmt: skip
def test_no_cause_is_seen_for_longer_than_it_lasted(loop: Loop, window_s: float) -> None:
    simulated = SimulatedLoop(loop, Random(3), WATCHED_S)
    totals = Daemon(simulated, window_s).run()
    until_s = totals.observed_ns / s(1)
    truth_s = {cause: simulated.seconds_of(cause, 0.0, until_s) for cause in (INPUT, SAVE)}

    assert set(totals.seen_ns) <= set(truth_s)
    for cause, seen_ns in totals.seen_ns.items():
        assert seen_ns / s(1) <= truth_s[cause] + 0.1 * sum(truth_s.values()), cause


@pytest.mark.parametrize("pause_s", [3.0, 10.0])
def test_most_of_long_pauses_is_seen(pause_s: float) -> None:
    simulated = SimulatedLoop(mixed(pause_s, pause_s, pause_s), Random(3), WATCHED_S)
    totals = Daemon(simulated, WINDOW).run()

    assert sum(totals.seen_ns.values()) > 0.8 * totals.idle_total_ns

"""States of a small machine, second by second, with consistent sums, for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName
from tests.builders.state import S, device, healthy_gpu, monitor_state, run, starved_gpu

SUSPECTED_UUID = "GPU-33333333-cccc"


@dataclass
class Counted:
    """The sums of one GPU so far."""

    busy_ns: int = 0
    pending_ns: int = 0
    suspected_ns: int = 0
    idle_ns: dict[IdleCause, int] = field(default_factory=dict)

    def idle(self, cause: IdleCause, spent_ns: int) -> None:
        self.idle_ns[cause] = self.idle_ns.get(cause, 0) + spent_ns

    @property
    def lost_ns(self) -> int:
        return sum(self.idle_ns.values()) - self.idle_ns.get(IdleCause.NOT_IN_USE, 0)

    def state(self, gpu: GpuState, verdict: VerdictName, utilization: float) -> GpuState:
        in_use_ns = self.busy_ns + self.lost_ns
        starved_ns = self.idle_ns.get(IdleCause.INPUT_WAIT, 0) + self.suspected_ns
        totals = gpu.totals._replace(
            observed_ns=self.busy_ns + sum(self.idle_ns.values()) + self.pending_ns,
            busy_ns=self.busy_ns,
            idle_ns=dict(self.idle_ns),
            pending_ns=self.pending_ns,
            suspected_ns=self.suspected_ns,
            in_use_ns=in_use_ns,
            in_use_busy_ns=self.busy_ns,
            input_wait_by_reason_ns={},
            starved_now=starved_ns > in_use_ns // 20,
        )
        assert gpu.latest is not None
        return gpu._replace(
            totals=totals,
            verdict=Verdict(
                name=verdict,
                severity=Severity.HIGH if totals.starved_now else Severity.NONE,
                pattern=Pattern.BURSTY if totals.starved_now else Pattern.BUSY,
                main_cause=max(self.idle_ns, key=lambda cause: self.idle_ns[cause], default=None),
                lost_ratio=self.lost_ns / max(1, in_use_ns),
                starved_ratio=starved_ns / max(1, in_use_ns),
                coverage_ratio=0.97,
            ),
            latest=gpu.latest._replace(utilization_ratio=utilization),
        )


def starved_and_healthy(seconds: int, *, started_ns: int = 0) -> Iterator[MonitorState]:
    """GPU 0 waits half of its time and saves, GPU 1 works, GPU 2 pauses without a known cause."""
    starved, healthy, suspected = Counted(), Counted(), Counted()
    for tick in range(1, seconds + 1):
        now_ns = started_ns + tick * S
        phase = _count_starved(starved, tick)
        _count_healthy(healthy, tick)
        utilization = _count_suspected(suspected, tick)
        gpus = (
            starved.state(starved_gpu(), VerdictName.STARVED, float(phase is _STEP)),
            healthy.state(healthy_gpu(), VerdictName.HEALTHY, 0.97),
            suspected.state(
                starved_gpu(device=device(2, SUSPECTED_UUID)),
                VerdictName.STARVATION_SUSPECTED,
                utilization,
            ),
        )
        yield monitor_state(
            taken_at_ns=now_ns,
            wall_time_s=1_700_000_000.0 + tick,
            gpus=tuple(gpu._replace(last_sample_at_ns=now_ns - S // 10) for gpu in gpus),
            runs=(
                run(
                    phase=phase,
                    steps=20 * tick,
                    wall_ns=tick * S,
                    phase_ns={
                        _STEP: starved.busy_ns + 1,
                        TrainingPhase.INPUT_WAIT: starved.idle_ns.get(IdleCause.INPUT_WAIT, 1),
                    },
                ),
            ),
            samples_total=tick,
        )


def machine(
    seconds: int, roles: Sequence[VerdictName], *, started_ns: int = 0
) -> Iterator[MonitorState]:
    """A GPU for each role: starved, suspected, stalled by checkpoints, healthy, or idle."""
    counted = [Counted() for _ in roles]
    for tick in range(1, seconds + 1):
        now_ns = started_ns + tick * S
        for role, one in zip(roles, counted, strict=True):
            _COUNTERS[role](one, tick)
        gpus = tuple(
            one.state(starved_gpu(device=device(place, f"GPU-{place}")), role, 0.97)._replace(
                last_sample_at_ns=now_ns - S // 10
            )
            for place, (role, one) in enumerate(zip(roles, counted, strict=True))
        )
        yield monitor_state(taken_at_ns=now_ns, gpus=gpus, runs=(), samples_total=tick)


def _count_stalled(counted: Counted, tick: int) -> None:
    if tick % 7 == 0:
        counted.idle(IdleCause.CHECKPOINT, S)
        return
    counted.busy_ns += 98 * S // 100
    counted.idle(IdleCause.WITHIN_STEP, S // 100)
    counted.idle(IdleCause.INPUT_WAIT, S // 100)


def _count_healthy(counted: Counted, tick: int) -> None:
    counted.busy_ns += 97 * S // 100
    counted.idle(IdleCause.WITHIN_STEP, 3 * S // 100)


def _count_idle(counted: Counted, tick: int) -> None:
    counted.idle(IdleCause.NOT_IN_USE, S)


_STEP = TrainingPhase.TRAIN_STEP


def _count_starved(counted: Counted, tick: int) -> TrainingPhase:
    if tick % 20 in (14, 15):
        counted.idle(IdleCause.CHECKPOINT, S)
        return TrainingPhase.CHECKPOINT
    if tick % 4 in (0, 1):
        counted.busy_ns += 9 * S // 10
        counted.idle(IdleCause.WITHIN_STEP, S // 10)
        return _STEP
    counted.idle(IdleCause.INPUT_WAIT, S)
    return TrainingPhase.INPUT_WAIT


def _count_suspected(counted: Counted, tick: int) -> float:
    if tick % 5 in (0, 1):
        counted.pending_ns += S
        return 0.0
    counted.busy_ns += S
    counted.idle(IdleCause.UNKNOWN, counted.pending_ns)
    counted.suspected_ns += counted.pending_ns
    counted.pending_ns = 0
    return 1.0


_COUNTERS: Mapping[VerdictName, Callable[[Counted, int], object]] = {
    VerdictName.STARVED: _count_starved,
    VerdictName.STALLED: _count_stalled,
    VerdictName.STARVATION_SUSPECTED: _count_suspected,
    VerdictName.HEALTHY: _count_healthy,
    VerdictName.NOT_IN_USE: _count_idle,
}

"""A store, and minutes of a machine that it follows tick by tick."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpumon.core.accounting.pending import PendingTime
from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause
from gpumon.core.sample import GpuSample
from gpumon.core.state import GpuState, MonitorState
from gpumon.outlets.store.store import Store
from tests.builders.state import device, healthy_gpu, monitor_state

START_S = 1_790_000_040.0
"""The beginning of a minute."""


@dataclass
class Card:
    """One GPU, whose time is counted as a ledger counts it."""

    uuid: str = "GPU-0"
    index: int = 0
    busy_ns: int = 0
    idle_ns: Counter[IdleCause] = field(default_factory=Counter)
    pending: PendingTime = field(default_factory=PendingTime)
    suspected_ns: int = 0
    pauses: int = 0
    end_ns: int = 0
    power_watts: float = 300.0

    def settle(self, cause: IdleCause, amount_ns: int | None = None) -> None:
        """Settle pending time, the oldest first: all of it by default."""
        amount_ns = self.pending.amount_ns if amount_ns is None else amount_ns
        if amount_ns:
            self.pending.settle(cause, amount_ns)
            self.idle_ns[cause] += amount_ns
            self.pauses += 1

    @property
    def totals(self) -> GpuTotals:
        idle_ns = {cause: ns for cause, ns in self.idle_ns.items() if ns}
        lost_ns = sum(idle_ns.values()) - idle_ns.get(IdleCause.NOT_IN_USE, 0)
        paused_ns = idle_ns.get(IdleCause.UNKNOWN, 0)
        pauses = GapTotals(self.pauses, paused_ns, paused_ns, paused_ns, paused_ns)
        return GpuTotals(
            observed_ns=self.busy_ns + sum(idle_ns.values()) + self.pending.amount_ns,
            busy_ns=self.busy_ns,
            idle_ns=idle_ns,
            pending_ns=self.pending.amount_ns,
            in_use_ns=self.busy_ns + lost_ns,
            in_use_busy_ns=self.busy_ns,
            suspected_ns=self.suspected_ns,
            input_wait_by_reason_ns={"disk_bound": idle_ns.get(IdleCause.INPUT_WAIT, 0)},
            pauses=pauses if self.pauses and paused_ns else GapTotals(),
        )

    @property
    def state(self) -> GpuState:
        shown = device(self.index, self.uuid)
        return healthy_gpu(
            device=shown,
            totals=self.totals,
            latest=GpuSample(
                shown, memory_used_bytes=8 << 30, power_watts=self.power_watts,
                temperature_celsius=50.0, sm_clock_hertz=1.7e9,
            ),
            last_sample_at_ns=self.end_ns,
            unsettled=self.pending.snapshot(0, 0, 0),
        )  # fmt: skip


class Machine:
    """Cards whose time a store follows; the wall clock may be set."""

    def __init__(self, store: Store, *cards: Card, source: str = "nvml") -> None:
        self.store, self.cards = store, cards or (Card(),)
        self.now_ns, self.wall_s = 1_000 * NS_PER_S, START_S
        self.source, self.began_s = source, START_S

    def begin(self, at_s: float) -> None:
        """The wall clock at which this daemon begins."""
        self.wall_s = self.began_s = at_s

    def tick(self, length_s: float = 1.0, **changes: Any) -> MonitorState:
        """A tick after so much time, which the cards have counted."""
        self.now_ns += round(length_s * NS_PER_S)
        self.wall_s += length_s
        for card in self.cards:
            card.end_ns = self.now_ns
        state = monitor_state(
            taken_at_ns=self.now_ns,
            wall_time_s=self.wall_s,
            started_wall_time_s=self.began_s,
            source=self.source,
            gpus=tuple(card.state for card in self.cards),
            **{"runs": (), **changes},
        )
        self.store.follow(state)
        return state

    def work(self, seconds: float, busy_ratio: float = 1.0, **changes: Any) -> None:
        """Ticks of a second in which each card is busy for a part, and pending for the rest."""
        for _ in range(round(seconds)):
            for card in self.cards:
                busy_ns = round(busy_ratio * NS_PER_S)
                card.busy_ns += busy_ns
                card.pending.amount_ns += NS_PER_S - busy_ns
            self.tick(**changes)

    def history(self, from_s: float, to_s: float) -> dict[str, Any]:
        """The answer for a span, in seconds after ``START_S``."""
        body = self.store.history((START_S + from_s, START_S + to_s))
        assert body is not None
        document: dict[str, Any] = json.loads(body)
        return document


def sums(gpu: Mapping[str, Any]) -> dict[str, float]:
    """The parts of a GPU in an answered span, over all cells."""
    return {name: round(sum(cells), 3) for name, cells in gpu["parts"].items()}


def store_in(folder: Path) -> Store:
    """A store on disk, without a thread: what is asked of it is written first."""
    return Store(folder / "state" / "store.sqlite3")

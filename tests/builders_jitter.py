"""What the daemon shows of a ``follow:`` file, tick by tick, each a little late."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.core.state import MonitorState
from gpumon.sources.follow import FollowSource
from tests.builders_monitor import moment, monitor
from tests.builders_state import S, StoppedClock

_STARTED_NS: Final = 1_000 * S
_LATE: Final = 0.15
"""Shares of a period by which a tick may come late."""


def jittered_states(folder: Path, seconds: float, period_s: float) -> Iterator[MonitorState]:
    """A GPU that works 0.7 s of each second, watched so long: the clock is moved by hand.

    The driver's windows last 1/6 s, so that no two ticks observe the same length of time.
    """
    period_ns = round(period_s * S)
    clock, chance = StoppedClock(_STARTED_NS), random.Random(7)
    spans = folder / "spans"
    source = FollowSource(spans, clock)
    watching = monitor("follow:spans", simulated=True, period_ns=period_ns)
    written = 0
    with spans.open("w") as lines:
        for number in range(1, round(seconds / period_s) + 1):
            late_ns = round(chance.uniform(0.0, _LATE) * period_ns)
            clock.now_ns = _STARTED_NS + number * period_ns + late_ns
            while (end_ns := _STARTED_NS + written * S + 7 * S // 10) <= clock.now_ns:
                span = {"gpu": 0, "start_ns": end_ns - 7 * S // 10, "end_ns": end_ns}
                lines.write(json.dumps(span) + "\n")
                written += 1
            lines.flush()
            now_ns = clock.now_ns
            yield watching.take(moment(now_ns, source.read(), wall_time_s=now_ns / S))

"""A daemon's reports on loops second by second, and the rows that the dstat plugin makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.attribution.idle_sharing import SharedIdle
from gpumon.core.codecs.state_codec import state_document
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample, Frame, GpuSample
from gpumon.core.state import MonitorState
from tests.bare_dstat import Table
from tests.builders_monitor import moment, monitor
from tests.builders_state import S, device, healthy_gpu, monitor_state

Loop = Callable[[float], float]
"""How busy a GPU is at a time, in seconds."""
Document = dict[str, Any]
WINDOW_NS = S // 5
OPTIONS = ("dstat_gpu", "dstat_gpu_stall")


def square(busy_s: float, idle_s: float) -> Loop:
    """A loop that is idle first, as one that waits for its input."""
    return lambda at_s: 0.0 if at_s % (busy_s + idle_s) < idle_s else 1.0


def documents(
    *loops: Loop, seconds: int, drained_every: int = 1, first_pid: int = 1
) -> Iterator[Document]:
    """The state after each second, as the plugin has read it.

    Args:
        loops: What each GPU does.
        seconds: For how long.
        drained_every: After how many seconds the driver's samples are fetched.
        first_pid: Of the daemon.
    """
    watching = monitor()
    for second in range(1, seconds + 1):
        from_s = second - drained_every if second % drained_every == 0 else second
        gpus = tuple(
            GpuSample(device=device(index, f"GPU-{index}"), busy=_windows(loop, from_s, second))
            for index, loop in enumerate(loops)
        )
        state = watching.take(moment(second * S, Frame(taken_at_ns=second * S, gpus=gpus)))
        yield as_read(state, first_pid)


def as_read(state: MonitorState, pid: int = 1) -> Document:
    """The state as the plugin has it once it has read the file of that daemon."""
    document = state_document(state, pid=pid, address=None)
    read: Document = json.loads(json.dumps(document), parse_int=float)
    read["gpus"] = {gpu["label"]: gpu for gpu in read["gpus"]}
    return read


def tagged_documents(seed: int, seconds: int = 600) -> Iterator[Document]:
    """The state after each second, of idle time that phases explain wholly, in part or not."""
    random, ledger = Random(seed), GpuLedger()
    me, causes, busy = device(0, "GPU-0"), [IdleCause.INPUT_WAIT], 1.0
    for second in range(1, seconds + 1):
        if random.random() < 0.2:
            busy = random.choice((0.0, 0.0, 0.5, 1.0))
            causes = random.choices(list(IdleCause), k=random.choice((0, 0, 1, 2)))
        for at_ns in range((second - 1) * S, second * S, WINDOW_NS):
            left_ns, idle_ns = round((1 - busy) * WINDOW_NS), {}
            for cause in causes:
                idle_ns[cause] = random.choice((left_ns, left_ns // 2))
                left_ns -= idle_ns[cause]
            first_ns = idle_ns.get(IdleCause.INPUT_WAIT, 0) // 2 if second < 20 else 0
            shared = SharedIdle(idle_ns, first_input_wait_ns=first_ns)
            ledger.observe_shared(BusySample(at_ns, at_ns + WINDOW_NS, busy), shared)
        gpu = healthy_gpu()._replace(device=me, totals=ledger.snapshot())
        yield as_read(monitor_state(taken_at_ns=second * S, gpus=(gpu,)))


def _windows(loop: Loop, from_s: int, until_s: int) -> tuple[BusySample, ...]:
    starts_ns = range(from_s * S, until_s * S, WINDOW_NS)
    return tuple(BusySample(at, at + WINDOW_NS, loop(at / S)) for at in starts_ns)


class Row(NamedTuple):
    """What both options show of one group, and write into a file.

    Attributes:
        document: The state that they read.
        shown: On the screen: use, memory, starved; lost, main, cause.
        filed: The same in a file; ``""`` where a cell is empty.
        is_final: Whether the row stands; else it is in the making.
    """

    document: Document
    shown: list[Any]
    filed: list[str]
    is_final: bool


def rows_of(
    states: Iterable[Document | None], *, group: str = "0", delay: int = 1
) -> Iterator[Row]:
    """Rows of both options side by side in one host, an update a second."""
    tables = [Table(option, delay=delay) for option in OPTIONS]
    plugins = [table.plugin for table in tables]
    for table in tables:
        table.plugin.vars = [group]
        table.scope["totlist"] = plugins
    for update, document in enumerate(states):
        answer = (document, None)
        plugins[0]._fresh_state = lambda answer=answer: answer
        step = (update - 1) % delay + 1
        for table in tables:
            table.scope["step"] = step
            table.plugin.extract()
            table.plugin.show()
        shown = [value for plugin in plugins for value in plugin.val[group]]
        filed = [cell for plugin in plugins for cell in plugin.showcsv().split(",")]
        yield Row(document or {}, shown, filed, step == delay)


COUNTED: Sequence[Callable[[Document], float]] = (
    lambda gpu: gpu["busy_ns"],
    lambda gpu: gpu["starved_ns"] + gpu["suspected_ns"],
    lambda gpu: sum(
        ns for cause, ns in gpu["idle_ns"].items() if cause not in ("start_up", "not_in_use")
    ),
)
"""What ``use``, ``strv`` and ``lost`` have to add up to."""
SUMMED = (0, 2, 3)
"""Their places in a row."""


def strayed_seconds(rows: Iterable[Row], gpu: str = "0") -> list[float]:
    """How far the file's rows stray from the counters in any stretch, for each column.

    Returns:
        In seconds, over all stretches that begin and end with nothing pending.
    """
    sums_ns, before_ns = [0.0] * len(SUMMED), 0.0
    off_ns: list[list[float]] = [[0.0] for _ in SUMMED]
    for row in rows:
        if not row.is_final or row.filed[0] == "":
            continue
        reported = row.document["gpus"][gpu]
        row_ns, before_ns = reported["observed_ns"] - before_ns, reported["observed_ns"]
        for place, column in enumerate(SUMMED):
            sums_ns[place] += float(row.filed[column]) / 100 * row_ns
            if not reported["pending_ns"]:
                off_ns[place].append(sums_ns[place] - COUNTED[place](reported))
    return [(max(values) - min(values)) / S for values in off_ns]

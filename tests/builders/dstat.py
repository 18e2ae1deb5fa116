"""dstat's plugin without dstat: its state files, its hosts, and the rows it prints."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.idle_sharing import SharedIdle
from gpumon.core.codecs.state_codec import state_document
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.sample import BusySample, Frame, GpuSample
from gpumon.core.state import GpuState, MonitorState
from gpumon.outlets.state_file import StateFile
from tests.builders.monitor import monitor, reading
from tests.builders.state import GIB, S, device, healthy_gpu, monitor_state

NOTHING: Mapping[Any, float] = MappingProxyType({})
REASONS = [reason.value for reason in InputWaitReason]
PLUGIN = Path(__file__).resolve().parents[2] / "dstat_plugins" / "dstat_gpu.py"


DASHES = ["-", "-", "-"]


class BareHost:
    """The part of dstat's base class that the plugin uses."""

    vars: list[str]
    cols: int

    def statwidth(self) -> int:
        return len(self.vars) * (self.colwidth() + 1) - 1

    def colwidth(self) -> int:
        raise NotImplementedError("the plugin has columns of its own widths")


class Table:
    """The plugin in a host whose colours are readable names.

    Args:
        file_name: The plugin's file, which chooses its columns.
        before: Plugins that the host has already loaded.
        options: Of the host.
    """

    def __init__(
        self, file_name: str = "dstat_gpu", before: Sequence[Any] = (), **options: Any
    ) -> None:
        self.scope: dict[str, Any] = {
            "dstat": BareHost,
            "totlist": list(before),
            "op": SimpleNamespace(**{"delay": 1, "full": False, "output": False, **options}),
            "step": options.get("delay", 1),
            "ansi": {"reset": ""},
            "char": {"colon": ":", "sep": ","},
            "theme": {
                **dict.fromkeys(("subtitle", "frame", "default"), ""),
                **{"error": "<error>", "text_lo": "<text>", "text_hi": "<dim text>"},
                "colors_lo": ("<red>", "<yellow>", "<green>", "<blue>"),
                "colors_hi": ("<dim red>", "<dim yellow>", "<dim green>", "<dim blue>"),
            },
        }
        names: dict[str, Any] = {}
        # Both hosts separate what the file defines from what its methods can see.
        exec(compile(PLUGIN.read_text(encoding="ascii"), str(PLUGIN), "exec"), self.scope, names)
        self.plugin = names["dstat_plugin"]()
        self.plugin.filename = file_name
        self.plugin.check()

    def row(self) -> str:
        """The next row, with colours."""
        self.plugin.extract()
        return str(self.plugin.show())

    def cells(self) -> list[str]:
        """The next row's cells, without colours."""
        return re.sub("<error>|<(dim )?(text|red|yellow|green)>|:", " ", self.row()).split()


def this_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def gpu(
    index: int = 0,
    *,
    observed_s: float = 100,
    busy_s: float = 0,
    starved_s: float = 0,
    suspected_s: float = 0,
    pending_s: float = 0,
    memory_used_bytes: int | None = 60 * GIB,
    starved_now: bool = False,
    present: bool = True,
    idle_s: Mapping[IdleCause, float] = NOTHING,
    waited_s: Mapping[str, float] = NOTHING,
    in_step_s: Mapping[str, float] = NOTHING,
    **of_device: Any,
) -> GpuState:
    """A GPU with 120 GiB of memory and these seconds on its counters.

    Args:
        idle_s: More idle time, by cause; the rest of the observed time is unknown.
        waited_s: Starved time, by reason.
        in_step_s: Idle time within the step, by reason.
    """
    me = device(index, f"GPU-{index}", memory_capacity_bytes=120 * GIB)
    me = replace(me, **of_device)
    idle_s = {IdleCause.INPUT_WAIT: starved_s, **idle_s}
    unknown_s = observed_s - busy_s - pending_s - sum(idle_s.values())
    totals = GpuTotals(
        observed_ns=int(observed_s * S),
        busy_ns=int(busy_s * S),
        idle_ns=_in_ns({**idle_s, IdleCause.UNKNOWN: unknown_s}),
        input_wait_by_reason_ns=_in_ns(waited_s),
        within_step_by_reason_ns=_in_ns(in_step_s),
        suspected_ns=int(suspected_s * S),
        pending_ns=int(pending_s * S),
        starved_now=starved_now,
    )
    known = healthy_gpu()
    assert known.latest is not None
    latest = known.latest._replace(device=me, memory_used_bytes=memory_used_bytes)
    return known._replace(device=me, totals=totals, latest=latest, present=present)


def _in_ns(seconds: Mapping[Any, float]) -> dict[Any, int]:
    return {name: int(value * S) for name, value in seconds.items()}


def state_of(*gpus: GpuState, age_s: float = 0, **changes: Any) -> MonitorState:
    """The state of a daemon on real GPUs, ``age_s`` ago."""
    taken_at_ns = time.monotonic_ns() - int(age_s * S)
    gpus = tuple(gpu._replace(last_sample_at_ns=taken_at_ns - S // 10) for gpu in gpus)
    changes = {"boot_id": this_boot(), "simulated": False, "source": "nvml", **changes}
    return monitor_state(taken_at_ns=taken_at_ns, gpus=gpus, **changes)


def publish(folder: Path, *gpus: GpuState, age_s: float = 0, **changes: Any) -> None:
    """Write that state into ``folder``, as the daemon does."""
    folder.mkdir(exist_ok=True)
    StateFile(folder / "state.json").write(state_of(*gpus, age_s=age_s, **changes))


def alter_state(folder: Path, fields: Mapping[str, Any]) -> None:
    """Change fields of the first GPU in that file; ``...`` removes one."""
    path = folder / "state.json"
    document = json.loads(path.read_bytes())
    stated = {**document["gpus"][0], **fields}
    document["gpus"][0] = {name: value for name, value in stated.items() if value is not ...}
    path.write_text(json.dumps(document), encoding="ascii")


@contextmanager
def daemon(
    folder: Path, *shares: Mapping[str, float], delay_s: float = 0, **changes: Any
) -> Iterator[None]:
    """Write a state five times a second, with a GPU for each of ``shares``.

    Args:
        folder: Runtime folder.
        shares: Seconds per second, such as ``{"busy": 0.4, "starved": 0.6, "disk_bound": 0.5}``.
        delay_s: When the daemon starts.
        changes: Fields of the state.
    """
    stop = threading.Event()
    began_s = time.monotonic() + delay_s - 10

    def tick() -> None:
        publish(folder, *_after(time.monotonic() - began_s, shares), **changes)

    def work() -> None:
        stop.wait(delay_s)
        while not stop.is_set():
            tick()
            stop.wait(0.2)

    if not delay_s:
        tick()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _after(passed_s: float, shares: Sequence[Mapping[str, float]]) -> list[GpuState]:
    return [
        gpu(
            index,
            observed_s=passed_s,
            busy_s=passed_s * share.get("busy", 0),
            starved_s=passed_s * share.get("starved", 0),
            suspected_s=passed_s * share.get("suspected", 0),
            waited_s={reason: passed_s * share[reason] for reason in REASONS if reason in share},
        )
        for index, share in enumerate(shares)
    ]


DSTAT = "#!{python}\n### Dstat\npluginpath = [\n    os.path.expanduser('~/.dstat/'),\n]\n"
DOOL = "#!{python}\nimport sys\nfrom dool import __main__\nsys.exit(__main__.__main())\n"
PCP = "#!/usr/bin/env pmpython\n# pcp-dstat\nfrom pcp import pmconfig\n"


class Machine:
    """A fake machine under one folder, with a PATH of one folder."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.home = root / "home"
        self.environ = {"PATH": str(self.bin), "HOME": str(self.home)}

    def command(self, name: str, text: str, python: str = "python3.11") -> Path:
        interpreter = self.bin / python
        interpreter.touch(mode=0o755)
        path = self.bin / name
        path.write_text(text.format(python=interpreter), encoding="utf-8")
        path.chmod(0o755)
        return path

    def pcp_dstat(self) -> Path:
        """pcp-dstat, under the name dstat."""
        path = self.bin / "dstat"
        path.symlink_to(self.command("pcp-dstat", PCP))
        return path

    def stranger(self) -> Path:
        """The user's own file in the place of a copy of the plugin."""
        path = self.home / ".dstat" / "dstat_gpu.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("print('mine')\n", encoding="ascii")
        return path

    def copies(self) -> list[str]:
        """The Python files in the home folder."""
        return sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*.py"))


Loop = Callable[[float], float]
"""The busy ratio at a time in seconds."""
Document = dict[str, Any]
WINDOW_NS = S // 5
OPTIONS = ("dstat_gpu", "dstat_gpu_stall")


def square(busy_s: float, idle_s: float) -> Loop:
    """A loop that is idle first, as if waiting for its input."""
    return lambda at_s: 0.0 if at_s % (busy_s + idle_s) < idle_s else 1.0


def documents(
    *loops: Loop, seconds: int, drained_every: int = 1, is_staggered: bool = False
) -> Iterator[Document]:
    """The state after each second, as the plugin reads it.

    Args:
        loops: Of each GPU.
        seconds: For how long.
        drained_every: After how many seconds the driver's samples are read.
        is_staggered: Whether each GPU is read a second before the next.
    """
    watching = monitor()
    read_until_s = [0] * len(loops)
    for second in range(1, seconds + 1):
        samples = []
        for index, loop in enumerate(loops):
            busy: tuple[BusySample, ...] = ()
            if (second + is_staggered * index) % drained_every == 0:
                busy, read_until_s[index] = _windows(loop, read_until_s[index], second), second
            samples.append(GpuSample(device=device(index, f"GPU-{index}"), busy=busy))
        gpus = tuple(samples)
        state = watching.ingest(reading(second * S, Frame(taken_at_ns=second * S, gpus=gpus)))
        yield as_read(state)


def as_read(state: MonitorState) -> Document:
    """The state as the plugin reads it from the file."""
    document = state_document(state, pid=1, address=None)
    read: Document = json.loads(json.dumps(document), parse_int=float)
    read["gpus"] = {gpu["label"]: gpu for gpu in read["gpus"]}
    return read


def tagged_documents(seed: int) -> Iterator[Document]:
    """The state after each second, with idle time that phases explain, partly or not."""
    random, ledger = Random(seed), GpuLedger()
    me, causes, busy = device(0, "GPU-0"), [IdleCause.INPUT_WAIT], 1.0
    for second in range(1, 601):
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
    """A row of both options for one group.

    Attributes:
        document: The state that they read.
        shown: On the screen: use, memory, starved; lost, main, cause.
        filed: The same in a file; ``""`` for an empty cell.
        is_final: Whether the row is complete.
    """

    document: Document
    shown: list[Any]
    filed: list[str]
    is_final: bool


def rows_of(
    states: Iterable[Document | None], *, group: str = "0", delay: int = 1
) -> Iterator[Row]:
    """Rows of both options in one host, an update a second."""
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
"""The counters of ``use``, ``strv`` and ``lost``."""
SUMMED = (0, 2, 3)
"""Their columns."""


def strayed_seconds(rows: Iterable[Row]) -> list[float]:
    """The largest difference between the file's rows and the counters, in seconds, by column.

    Over all stretches that begin and end with nothing pending.
    """
    sums_ns, before_ns = [0.0] * len(SUMMED), 0.0
    off_ns: list[list[float]] = [[0.0] for _ in SUMMED]
    for row in rows:
        if not row.is_final or row.filed[0] == "":
            continue
        reported = row.document["gpus"]["0"]
        row_ns, before_ns = reported["observed_ns"] - before_ns, reported["observed_ns"]
        for place, column in enumerate(SUMMED):
            sums_ns[place] += float(row.filed[column]) / 100 * row_ns
            if not reported["pending_ns"]:
                off_ns[place].append(sums_ns[place] - COUNTED[place](reported))
    return [(max(values) - min(values)) / S for values in off_ns]

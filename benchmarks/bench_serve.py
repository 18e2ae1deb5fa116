"""What does ``gpumon serve`` cost next to nvitop-exporter, on a driver as fast as an H100's?

    python -m benchmarks.bench_serve [SECONDS] [--only WORDS] [--before CHECKOUT] [--idle]

Both run at the same time, once a second, each on two fake libnvidia-ml.so.1 of its own: on the
*plain* one a call costs almost nothing, on the *burning* one the CPU time that it takes on an H100
(``tests/fakenvml/call_prices.py``). Each is scraped every fifteen seconds as by Prometheus; some
cases then scrape 200 times, half a second apart, as OpenMetrics. CPU is that of the
process, so other work on the machine changes it little; memory is the resident set
at the end. ``--only`` runs the cases whose names contain these words; ``--before`` runs the gpumon
of another checkout beside them.

On an idle virtual machine all of this costs up to four times as much, and differs from minute to
minute, because each awakening is dear. So a loop of the lowest priority keeps each core awake, as
training does, unless ``--idle`` leaves it out. The floor is a Python process that only sleeps.

The columns after *own* are CPU in the driver's functions, by the account of the fake; *reported*
is their sum by gpumon's own account (``gpumon_nvml_call_seconds_total``), which is the wall clock's
and so higher on a busy machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.ring_format.events import RunFacts
from gpumon.sources.system_clock import read_boot_id
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.call_prices import CALL_US
from tests.fakenvml.control import FakeNvml
from tests.half_open_clients import quantile
from trainer_hooks.ring.mapped_file import RingFolder, make_ring
from trainer_hooks.ring.ring_writer import RingWriter

WARM_UP_S: Final = 15.0
SCRAPE_EVERY_S: Final = 15.0
SCRAPES, SCRAPES_APART_S = 200, 0.5
SETTLING_S: Final = 0.005
"""After an answer, the server still closes its side."""
OPENMETRICS: Final = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
}
RING_DEPTH, WINDOW_S = 71, 0.2
"""Utilisation samples that an H100 keeps, and what each covers, in seconds."""

GPUMON, BEFORE, EXPORTER = "gpumon", "gpumon before", "nvitop-exporter"
SLEEPER = "sleeping Python"
PLAIN, BURNING = "plain", "burning"
COLUMNS: Final = {
    "drains": "nvmlDeviceGetSamples",
    "energy": "nvmlDeviceGetTotalEnergyConsumption",
    "GPM": "nvmlGpm",
    "shares": "nvmlDeviceGetProcess",
    "MIG": "nvmlDeviceGetMigMode",
}
"""How the names of the functions in a column begin; *other* has the rest."""


class Case(NamedTuple):
    """What is watched, and who looks.

    Attributes:
        gpus: How many GPUs.
        busy_ratio: Share of the time in which each is busy.
        parts: MIG instances of each.
        runs: Tagged training runs that do nothing.
        has_page: Whether a page of gpumon is open; nvitop-exporter has none, and does not run.
        has_scrapes: Whether each tool is then scraped often.
    """

    gpus: int
    busy_ratio: float = 0.7
    parts: int = 0
    runs: int = 0
    has_page: bool = False
    has_scrapes: bool = False


ONE, WORK, IDLE = "1 GPU at work", "8 GPUs at work", "8 GPUs idle"
PAGE, MANY = "8 GPUs at work, a page open", "16 GPUs at work, 200 scrapes"
PAGE_OF_MANY = "16 GPUs at work, a page open"
PARTS = "16 GPUs of 7 MIG instances, 100 idle runs, 200 scrapes"
CASES: Final = {
    ONE: Case(1),
    WORK: Case(8),
    IDLE: Case(8, busy_ratio=0.0),
    PAGE: Case(8, has_page=True),
    PAGE_OF_MANY: Case(16, has_page=True),
    MANY: Case(16, has_scrapes=True),
    PARTS: Case(16, busy_ratio=0.0, parts=7, runs=100, has_scrapes=True),
}


class Cost(NamedTuple):
    """What a process has taken so far."""

    cpu_s: float
    memory_mib: float


class Scrape(NamedTuple):
    """How long it took, and the CPU of the tool, both in milliseconds."""

    ms: float
    cpu_ms: float


class Result(NamedTuple):
    """What one tool took on one driver.

    Attributes:
        cpu: CPU, in percent of a core.
        driver: The same in the driver, by column.
        reported: The same in the driver, by gpumon's own account.
        memory_mib: Resident memory.
        scrapes: Empty if the case has none.
    """

    cpu: float
    driver: dict[str, float]
    reported: float
    memory_mib: float
    scrapes: list[Scrape]

    def scrape_ms(self, share: float) -> float:
        """That quantile of the time of a scrape."""
        return quantile(sorted(scrape.ms for scrape in self.scrapes), share)

    def scrape_cpu_ms(self) -> float:
        """CPU of a scrape, the mean."""
        return sum(scrape.cpu_ms for scrape in self.scrapes) / len(self.scrapes)


Name = tuple[str, str]
"""A tool and its driver."""
Results = dict[str, dict[Name, Result]]
"""By the name of the case."""


class Goal(NamedTuple):
    """What a figure of a case may be at most."""

    case: str
    driver: str
    what: str
    most: float
    figure: Callable[[Result], float]
    is_ratio: bool = False  # to nvitop-exporter's

    def value(self, results: Results) -> float:
        rows = results[self.case]
        ours = self.figure(rows[GPUMON, self.driver])
        return ours / self.figure(rows[EXPORTER, self.driver]) if self.is_ratio else ours


GOALS: Final = (
    Goal(WORK, BURNING, "% of a core", 0.6, lambda result: result.cpu),
    Goal(IDLE, BURNING, "% of a core", 0.3, lambda result: result.cpu),
    Goal(PAGE, BURNING, "% of a core", 3.5, lambda result: result.cpu),
    Goal(WORK, PLAIN, "% of a core", 0.15, lambda result: result.cpu),
    Goal(WORK, PLAIN, "CPU", 0.25, lambda result: result.cpu, is_ratio=True),
    Goal(WORK, PLAIN, "MiB", 38.0, lambda result: result.memory_mib),
    Goal(MANY, PLAIN, "p99 of a scrape, ms", 10.0, lambda result: result.scrape_ms(0.99)),
    Goal(MANY, PLAIN, "CPU of a scrape", 0.5, lambda result: result.scrape_cpu_ms(), is_ratio=True),
    Goal(PARTS, PLAIN, "p99 of a scrape, ms", 20.0, lambda result: result.scrape_ms(0.99)),
    Goal(
        PARTS, PLAIN, "p99 of a scrape", 1.0, lambda result: result.scrape_ms(0.99), is_ratio=True
    ),
)


def cost_of(pid: int) -> Cost:
    """CPU of all threads, also of those that ended, and resident memory of a process."""
    cpu_clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) gives it
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Cost(time.clock_gettime(cpu_clock), pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(
    words: list[str], environ: Mapping[str, str], folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a peer quietly, in this folder."""
    # Without compiled files, each process keeps what compiling took: a third more memory.
    kept = {name: word for name, word in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        env=kept, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


class Peer:
    """A tool that runs on a driver of its own, started in ``checkout``. Ends when left."""

    def __init__(
        self,
        tool: str,
        case: Case,
        folder: Path,
        *,
        is_burning: bool,
        checkout: Path | None = None,
    ) -> None:
        folder.mkdir()
        library = build_fake(folder.parent)
        self.tool, self._folder = tool, folder
        self._fake = _driver(folder / "control", case, is_burning=is_burning)
        phases = RingFolder(folder / "phases", 0o600)
        phases.path.mkdir(mode=0o700)
        self._rings = [
            RingWriter(make_ring(phases, facts, wall_ns=time.time_ns()), facts)
            for facts in self._idle_runs(case.runs if tool != EXPORTER else 0)
        ]
        self.port = free_port()
        self._client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._process = start(
            ["gpumon", "serve", "--listen", f"127.0.0.1:{self.port}"]
            if tool != EXPORTER
            else ["nvitop_exporter", "--port", str(self.port)],
            {
                **fake_env(self._fake.path, library.parent),
                "GPUMON_RUNTIME_DIR": str(folder),
                "XDG_STATE_HOME": str(folder / "state"),
            },
            checkout if tool == BEFORE else None,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait(10)
        self._fake.close()

    def _idle_runs(self, runs: int) -> Iterator[RunFacts]:
        """One run for each of the first processes on the GPUs."""
        for number in range(runs):
            process = self._fake.control.processes[number]
            part = process.gpu_instance - self._fake.part(process.gpu, 0).gpu_instance
            yield RunFacts(
                run=f"run-{number}", job=f"job-{number}", pid=process.pid, boot_id=read_boot_id(),
                started_ns=time.monotonic_ns(),
                gpus=(self._fake.part(process.gpu, part).uuid.decode(),),
            )  # fmt: skip

    def cost(self) -> Cost:
        """What it has taken so far."""
        return cost_of(self._process.pid)

    def runs_read(self) -> int:
        """How many runs gpumon shows."""
        return len(json.loads((self._folder / "state.json").read_bytes())["runs"])

    def scrape(self, headers: Mapping[str, str]) -> bytes:
        """Its metrics, on the same connection while the tool keeps it, as Prometheus does."""
        try:
            self._client.request("GET", "/metrics", headers=dict(headers))
            answer = self._client.getresponse()
        except ConnectionError:  # it was idle for too long
            self._client.close()
            self._client.request("GET", "/metrics", headers=dict(headers))
            answer = self._client.getresponse()
        body = answer.read()
        assert answer.status == 200, answer.status
        return body

    def timed_scrape(self) -> Scrape:
        """A scrape as OpenMetrics, without what the driver burns meanwhile."""
        cpu_s, driver_s = self.cost().cpu_s, sum(self.call_seconds().values())
        sent_s = time.perf_counter()
        self.scrape(OPENMETRICS)
        answered_s = time.perf_counter()
        time.sleep(SETTLING_S)
        cpu_s, driver_s = self.cost().cpu_s - cpu_s, sum(self.call_seconds().values()) - driver_s
        return Scrape(1e3 * (answered_s - sent_s), 1e3 * (cpu_s - driver_s))

    def call_seconds(self) -> dict[str, float]:
        """CPU seconds inside each function of the driver so far."""
        return self._fake.seconds_inside()

    def reported_seconds(self) -> float:
        """The same in all, as gpumon reports it; 0 of nvitop-exporter, which does not."""
        row = r'^gpumon_nvml_call_seconds_total\{function="(\w+)"\} (\S+)$'
        rows = re.findall(row, self.scrape({}).decode(), re.MULTILINE)
        return sum(float(spent_s) for name, spent_s in rows if "EventSetWait" not in name)


def _driver(path: Path, case: Case, *, is_burning: bool) -> FakeNvml:
    """The GPUs of a case, and a process of this benchmark on each."""
    fake = FakeNvml(path, gpus=case.gpus)
    for slot in range(case.gpus):
        fake.gpu(slot).ring_depth = RING_DEPTH
        period_s = 1.0 + 0.1 * slot
        fake.wave(slot, period_s=period_s, busy_ratio=case.busy_ratio, window_s=WINDOW_S)
        if case.parts:
            fake.cut(slot, case.parts)
        elif case.busy_ratio:
            fake.run(slot, os.getpid())
    for number in range(case.runs):
        fake.run(number // case.parts, os.getpid(), part=number % case.parts)
    if is_burning:
        fake.burn(CALL_US)
    return fake


@contextmanager
def python_loop(code: str) -> Iterator[int]:
    """A process that runs this code; gives its pid."""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextmanager
def page_of(peer: Peer) -> Iterator[Callable[[], int]]:
    """Keep a page of gpumon open; gives how many ticks it was sent so far."""
    ticks = 0

    def read() -> None:
        nonlocal ticks
        with page.makefile("rb") as stream:
            for line in stream:
                ticks += line.startswith(b"data:")

    with socket.create_connection(("127.0.0.1", peer.port), timeout=30) as page:
        head = f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{peer.port}\r\n\r\n"
        page.sendall(head.encode())
        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield lambda: ticks
        finally:
            page.shutdown(socket.SHUT_RDWR)
            reader.join()


def spent(peers: Mapping[Name, Peer], wait: Callable[[], None]) -> tuple[float, dict[Name, float]]:
    """How long ``wait`` took, and the CPU of each peer meanwhile, both in seconds."""
    began_s = time.monotonic()
    before = {name: peer.cost().cpu_s for name, peer in peers.items()}
    wait()
    after = {name: peer.cost().cpu_s for name, peer in peers.items()}
    return time.monotonic() - began_s, {name: after[name] - before[name] for name in peers}


def scraped_now_and_then(peers: Mapping[Name, Peer], seconds: float) -> None:
    """Let them run, and scrape each every fifteen seconds."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        for peer in peers.values():
            peer.scrape({})
        time.sleep(min(SCRAPE_EVERY_S, left_s))


def scraped_often(peers: Mapping[Name, Peer]) -> dict[Name, list[Scrape]]:
    """Scrape each many times, in turn."""
    scrapes: dict[Name, list[Scrape]] = {name: [] for name in peers}
    for _ in range(SCRAPES):
        began_s = time.monotonic()
        for name, peer in peers.items():
            scrapes[name].append(peer.timed_scrape())
        time.sleep(max(0.0, began_s + SCRAPES_APART_S - time.monotonic()))
    return scrapes


def measure(
    case: Case, folder: Path, seconds: float, checkout: Path | None = None
) -> dict[Name, Result]:
    """Run the tools on both drivers, all at the same time."""
    tools = (GPUMON, EXPORTER) if checkout is None else (BEFORE, GPUMON, EXPORTER)
    names = [(tool, driver) for driver in (PLAIN, BURNING) for tool in tools]
    with ExitStack() as stack:
        peers = {
            (tool, driver): stack.enter_context(
                Peer(
                    tool,
                    case,
                    folder / f"{tool}-{driver}",
                    is_burning=driver == BURNING,
                    checkout=checkout,
                )
            )
            for tool, driver in names
            if tool != EXPORTER or not case.has_page
        }
        sleeper = stack.enter_context(python_loop("import time\nwhile True: time.sleep(1.0)"))
        time.sleep(WARM_UP_S)
        pages = [stack.enter_context(page_of(peer)) for peer in peers.values() if case.has_page]
        reported_s = {name: -peer.reported_seconds() for name, peer in peers.items()}
        calls_before = {name: peer.call_seconds() for name, peer in peers.items()}
        slept_s = -cost_of(sleeper).cpu_s
        passed_s, cpu_s = spent(peers, lambda: scraped_now_and_then(peers, seconds))
        slept_s += cost_of(sleeper).cpu_s
        calls = {name: peer.call_seconds() for name, peer in peers.items()}
        for name, peer in peers.items():
            reported_s[name] += peer.reported_seconds()
        for ticks in pages:
            assert ticks() > 0.8 * seconds, "the page was not sent each tick"
        for (tool, _), peer in peers.items():
            assert tool == EXPORTER or peer.runs_read() == case.runs, peer.runs_read()
        scrapes = scraped_often(peers) if case.has_scrapes else {name: [] for name in peers}
        results = {
            name: Result(
                cpu=100 * cpu_s[name] / passed_s,
                driver=_by_column(calls_before[name], calls[name], 100 / passed_s),
                reported=100 * reported_s[name] / passed_s,
                memory_mib=peer.cost().memory_mib,
                scrapes=scrapes[name],
            )
            for name, peer in peers.items()
        }
        floor = 100 * slept_s / passed_s
        nothing = _by_column({}, {}, 0.0)
        results[SLEEPER, PLAIN] = Result(floor, nothing, 0.0, cost_of(sleeper).memory_mib, [])
        return results


def _by_column(
    before: Mapping[str, float], after: Mapping[str, float], factor: float
) -> dict[str, float]:
    """The growth of each column, times the factor."""
    columns = dict.fromkeys((*COLUMNS, "other"), 0.0)
    for function, spent_s in after.items():
        column = next(
            (name for name, start in COLUMNS.items() if function.startswith(start)), "other"
        )
        columns[column] += factor * (spent_s - before.get(function, 0.0))
    return columns


def print_table(results: Results) -> None:
    """Print a line for each tool, driver and case."""
    columns = ["CPU", "own", *COLUMNS, "other", "reported", "MiB", "p50", "p99", "CPU"]
    print(f"{'':<29}{'percent of a core':<88}a scrape, ms")
    print(f"{'':<26}" + "".join(f"{column:>9}" for column in columns))
    for case, rows in results.items():
        print(case)
        for (tool, driver), row in rows.items():
            own = row.cpu - sum(row.driver.values())
            percents = (row.cpu, own, *row.driver.values(), row.reported)
            cells = "".join(f"{percent:>9.2f}" for percent in percents)
            cells += f"{row.memory_mib:>9.1f}"
            if row.scrapes:
                times_ms = (row.scrape_ms(0.5), row.scrape_ms(0.99), row.scrape_cpu_ms())
                cells += "".join(f"{ms:>9.1f}" for ms in times_ms)
            print(f"  {f'{tool}, {driver}':<24}{cells}")


def print_goals(results: Results) -> bool:
    """Print what is compared with a goal; whether one was missed."""
    missed = False
    for goal in GOALS:
        if goal.case in results:
            value = goal.value(results)
            missed |= value > goal.most
            what = f"{goal.what} / {EXPORTER}" if goal.is_ratio else goal.what
            verdict = "missed" if value > goal.most else "met"
            print(
                f"{goal.case}, {goal.driver}: {what} {value:.2f} (at most {goal.most:g}: {verdict})"
            )
    return missed


def memory_folder() -> str | None:
    """Where files live in memory, as /run does on every Linux with systemd."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """Print the tables; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="bench_serve", description=__doc__.splitlines()[0])
    parser.add_argument("seconds", nargs="?", type=float, default=60.0)
    parser.add_argument("--only", default="", help="the cases whose names contain these words")
    parser.add_argument("--before", type=Path, help="a checkout whose gpumon runs beside this one")
    parser.add_argument("--idle", action="store_true", help="let the cores fall asleep")
    arguments = parser.parse_args()
    results: Results = {}
    with ExitStack() as stack:
        for _ in range(0 if arguments.idle else os.cpu_count() or 1):
            stack.enter_context(python_loop("import os\nos.nice(19)\nwhile True: pass"))
        text = stack.enter_context(tempfile.TemporaryDirectory(dir=memory_folder()))
        for number, (name, case) in enumerate(CASES.items()):
            if arguments.only in name:
                folder = Path(text) / str(number)
                folder.mkdir()
                results[name] = measure(case, folder, arguments.seconds, arguments.before)
    print_table(results)
    print(f"load average {os.getloadavg()[0]:.1f}")
    return int(print_goals(results))


if __name__ == "__main__":
    sys.exit(main())

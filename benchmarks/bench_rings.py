"""What do phase rings cost a daemon: busy ones, idle ones, and a folder with files of other users?

    python -m benchmarks.bench_rings [SECONDS] [--json]

Real daemons run in parallel on eight simulated GPUs: one without a ring, one with 16 rings that get
10,000 transitions a second, one with 100 rings of idle training runs. The cost of rings is the CPU
time of a daemon minus that of the one without. Another process writes the rings, paced by the
clock, and reports what it wrote. Each ring names one GPU; a step is two transitions, ``input_wait``
and ``train_step``. A fourth daemon reads 16 rings that also count every step and its samples, which
makes 20,000 records a second of the same 10,000 transitions: reported next to the goal, not
compared with it.

Two more are for a machine with other users: the folder has 10,000 files that are no rings, or as
many that have names of rings; the second goal is the total CPU time of a daemon without a run. And
256 rings, the maximum that is read, belong to nine owners: once living, idle runs, once runs that
have ended (only root can give them to other users; else they have one owner).

An invalid run proves nothing: if a daemon missed a tenth of its ticks or did not read every ring,
or a writer was too slow, it exits with 2.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.bench_serve import memory_folder
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_format.events import RunFacts
from gpumon.sources.system_clock import read_boot_id
from trainer_hooks.ring.mapped_file import RingFolder, make_ring
from trainer_hooks.ring.ring_writer import RingWriter

GPUS = 8
BUSY_RINGS = 16
IDLE_RINGS = 100
TRANSITIONS_A_SECOND = 10_000
ROUND_S = 0.01
WARM_UP_S = 30.0
"""What is in the folder is listed meanwhile, and what is no ring given up."""
LEAST_SECONDS = 5.0
MOST_RINGS = 256
OWNERS = 9
FILES = 10_000
GOAL_PERCENT = 0.5
NO_RUN_GOAL_PERCENT = 0.4
LEAST_RATE = 0.95
LEAST_TICKS = 0.9

_INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
_TRAIN_STEP = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]


class Case(NamedTuple):
    """One daemon: how many rings it reads, and what is written into them before they end."""

    rings: int
    transitions_a_second: int
    is_compared_with_goal: bool = True
    counts_steps: bool = False
    owners: int = 1
    are_over: bool = False
    files: str | None = None


CASES = {
    "no ring": Case(0, 0),
    f"{BUSY_RINGS} rings, {TRANSITIONS_A_SECOND} transitions/s": Case(
        BUSY_RINGS, TRANSITIONS_A_SECOND
    ),
    f"{BUSY_RINGS} rings, and steps counted": Case(
        BUSY_RINGS, TRANSITIONS_A_SECOND, is_compared_with_goal=False, counts_steps=True
    ),
    f"{IDLE_RINGS} rings, idle": Case(IDLE_RINGS, 0),
    f"{MOST_RINGS} rings of {OWNERS} owners, idle": Case(
        MOST_RINGS, 0, is_compared_with_goal=False, owners=OWNERS
    ),
    f"{MOST_RINGS} rings of {OWNERS} owners, over": Case(
        MOST_RINGS, 0, is_compared_with_goal=False, owners=OWNERS, are_over=True
    ),
    f"no ring, {FILES} other files": Case(0, 0, files="junk-{}"),
    f"no ring, {FILES} files like rings": Case(0, 0, files="{}-1.ring"),
}


def write_rings(folder: Path, case: Case) -> None:
    """Make the rings, write into them at an even pace until stdin ends, then say how much."""
    if case.files is not None:
        for number in range(FILES):
            (folder / "phases" / case.files.format(number)).touch()
    writers = [_made(folder / "phases", case, number) for number in range(case.rings)]
    print("there", flush=True)
    os.set_blocking(sys.stdin.fileno(), False)
    began_s, steps = time.monotonic(), 0
    while sys.stdin.buffer.raw.read(1) is None:  # type: ignore[union-attr]
        due = int((time.monotonic() - began_s) * case.transitions_a_second / 2)
        while steps < due:
            writer = writers[steps % len(writers)]
            writer.enter(_INPUT_WAIT)
            writer.enter(_TRAIN_STEP)
            if case.counts_steps:
                writer.step(1, 32)
            steps += 1
        time.sleep(ROUND_S)
    print(json.dumps(2 * steps / (time.monotonic() - began_s)), flush=True)


def _made(phases: Path, case: Case, number: int) -> RingWriter:
    facts = RunFacts(
        run=f"run-{number}", job=f"job-{number}", pid=os.getpid(), boot_id=read_boot_id(),
        started_ns=time.monotonic_ns(), gpus=(str(number % GPUS),),
    )  # fmt: skip
    ring = make_ring(RingFolder(phases, 0o600), facts, wall_ns=time.time_ns())
    writer = RingWriter(ring, facts)
    if case.owners > 1 and os.geteuid() == 0:
        os.chown(ring.path, 60_000 + number % case.owners, -1)
    if case.are_over:
        ring.let_go()
    return writer


class SpoiltError(Exception):
    """Why nothing can be concluded from this run, as a sentence."""


class Result(NamedTuple):
    """What was seen of one daemon."""

    percent: float
    transitions_a_second: float


class Peer:
    """A daemon and the process that writes its rings. Ends both when left."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = folder
        self.case = CASES[name]
        (folder / "phases").mkdir(parents=True, mode=0o700)
        environ = {**os.environ, "GPUMON_RUNTIME_DIR": str(folder)}
        words = ["serve", "--source", f"follow:{folder}/busy.jsonl", "--listen", "127.0.0.1:0"]
        words.append("--no-store")
        self._ticks: set[int] = set()
        self._writer = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bench_rings", "--write", str(folder), name],
            env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._daemon = subprocess.Popen(
            [sys.executable, "-m", "gpumon", *words],
            env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._daemon, self._writer):
            process.kill()
            process.communicate()

    def wait_until_rings_are_there(self) -> None:
        """The writer makes them while the daemon starts."""
        assert self._writer.stdout is not None
        if self._writer.stdout.readline() != "there\n":
            raise SpoiltError(f"{self.name}: the rings could not be made")

    def cpu_s(self) -> float:
        """CPU time of the daemon so far, in seconds."""
        try:
            times = psutil.Process(self._daemon.pid).cpu_times()
        except psutil.Error as error:
            raise SpoiltError(f"{self.name}: the daemon has ended") from error
        return float(times.user + times.system)

    def look(self) -> dict[str, Any]:
        """The daemon's newest state; each is one tick."""
        try:
            state: dict[str, Any] = json.loads((self.folder / "state.json").read_bytes())
        except FileNotFoundError:
            return {}
        self._ticks.add(state["monotonic_ns"])
        return state

    def transitions_a_second(self, lasted_s: float) -> float:
        """Stop the writer; how many there were, if all was as it should be.

        Raises:
            SpoiltError: It was not.
        """
        state = self.look()
        if not state:
            raise SpoiltError(f"{self.name}: the daemon wrote no state")
        runs, rings = len(state["runs"]), self.case.rings
        if runs != rings:
            raise SpoiltError(f"{self.name}: the daemon read {runs} rings of {rings}")
        failed = [
            one["name"]
            for one in state["collectors"]
            if one["errors_total"] and not (self.case.files and one["name"] == "phase_rings")
        ]
        if failed:
            raise SpoiltError(f"{self.name}: the daemon had errors in {', '.join(failed)}")
        if len(self._ticks) < LEAST_TICKS * lasted_s:
            raise SpoiltError(f"{self.name}: {len(self._ticks)} ticks in {lasted_s:.0f} s")
        printed, _ = self._writer.communicate("", timeout=30)
        rate = float(printed)
        if rate < LEAST_RATE * self.case.transitions_a_second:
            raise SpoiltError(f"{self.name}: only {rate:.0f} transitions/s could be written")
        return rate


def _write_busy_spans(folders: list[Path]) -> None:
    """Every GPU busy for 70 % of the last second, so that each window has idle time to share."""
    now_ns = time.monotonic_ns()
    for folder in folders:
        with (folder / "busy.jsonl").open("a") as file:
            for gpu in range(GPUS):
                span = {"gpu": gpu, "start_ns": now_ns - 700_000_000, "end_ns": now_ns}
                file.write(json.dumps(span) + "\n")


def measure(folder: Path, seconds: float) -> dict[str, Result]:
    """What each daemon took, side by side.

    Raises:
        SpoiltError: Something was not as it should be.
    """
    with ExitStack() as running:
        peers = [
            running.enter_context(Peer(folder / str(number), name))
            for number, name in enumerate(CASES)
        ]
        for peer in peers:
            peer.wait_until_rings_are_there()
        _keep_busy(peers, WARM_UP_S)
        since_s = time.monotonic()
        before_s = [peer.cpu_s() for peer in peers]
        _keep_busy(peers, seconds)
        lasted_s = time.monotonic() - since_s
        spent_s = [peer.cpu_s() - before for peer, before in zip(peers, before_s, strict=True)]
        return {
            peer.name: Result(100 * spent / lasted_s, peer.transitions_a_second(lasted_s))
            for peer, spent in zip(peers, spent_s, strict=True)
        }


def _keep_busy(peers: Sequence[Peer], seconds: float) -> None:
    """Give the GPUs something to do, twice in each tick, and see what the daemons make of it."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        _write_busy_spans([peer.folder for peer in peers])
        for _ in range(2):
            time.sleep(0.5)
            for peer in peers:
                peer.look()


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; 1 where the goal is missed, 2 where nothing can be concluded."""
    parser = argparse.ArgumentParser(prog="bench_rings", description=__doc__.splitlines()[0])
    parser.add_argument("seconds", nargs="?", type=float, default=60.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(words)
    if not arguments.seconds >= LEAST_SECONDS:
        parser.error(f"below {LEAST_SECONDS:g} seconds, a tick more or less is all there is to see")
    try:
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
            results = measure(Path(folder), arguments.seconds)
    except SpoiltError as error:
        print(f"Nothing was measured: {error}.", file=sys.stderr)
        return 2
    (_print_json if arguments.json else _print_table)(results)
    too_dear = _cost_percent(results) > GOAL_PERCENT
    return int(too_dear or _no_run_percent(results) > NO_RUN_GOAL_PERCENT)


def _beyond_none(results: Mapping[str, Result]) -> dict[str, float]:
    """What the rings of each case took, in percent of a core."""
    base = results["no ring"].percent
    return {name: result.percent - base for name, result in results.items()}


def _cost_percent(results: Mapping[str, Result]) -> float:
    """The dearest case that the goal is about."""
    beyond = _beyond_none(results)
    return max(beyond[name] for name, case in CASES.items() if case.is_compared_with_goal)


def _no_run_percent(results: Mapping[str, Result]) -> float:
    """The dearest daemon without a run, whatever else lies in the folder."""
    return max(result.percent for name, result in results.items() if not CASES[name].rings)


def _print_table(results: Mapping[str, Result]) -> None:
    beyond = _beyond_none(results)
    print(f"{'one core, in percent':<38}{'daemon':>8}{'rings':>8}{'transitions/s':>15}")
    for name, (percent, rate) in results.items():
        print(f"{name:<38}{percent:>8.2f}{beyond[name]:>8.2f}{rate:>15.0f}")
    cost = _cost_percent(results)
    print(f"the rings cost at most {cost:.2f} % (goal: {GOAL_PERCENT:g} %)")
    no_run = _no_run_percent(results)
    print(f"a daemon without a run takes at most {no_run:.2f} % (goal: {NO_RUN_GOAL_PERCENT:g} %)")


def _print_json(results: Mapping[str, Result]) -> None:
    beyond = _beyond_none(results)
    cases = [
        {
            "case": name,
            "rings": CASES[name].rings,
            "daemon_percent": percent,
            "rings_percent": beyond[name],
            "transitions_per_second": rate,
            "is_compared_with_goal": CASES[name].is_compared_with_goal,
        }
        for name, (percent, rate) in results.items()
    ]
    reported = {
        "cases": cases,
        "cost_percent": _cost_percent(results),
        "goal_percent": GOAL_PERCENT,
        "no_run_percent": _no_run_percent(results),
        "no_run_goal_percent": NO_RUN_GOAL_PERCENT,
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(reported))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_rings(Path(sys.argv[2]), CASES[sys.argv[3]])
    else:
        sys.exit(main())

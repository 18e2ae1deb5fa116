"""Measures one board part by part; what fails is noted, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gpumon.core.clock import Clock, seconds
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.fields.table import NVML_FIELDS, nvml_options
from gpumon.sources.nvml.probe.probe import NvmlProbe, ProbeLimits
from gpumon.sources.nvml.probe.probed import ProbedGpu
from tests.tools.board_capture.accuracy import WaveWatcher
from tests.tools.board_capture.activity import watch_activity
from tests.tools.board_capture.board import Board
from tests.tools.board_capture.load import Load, LoadError
from tests.tools.board_capture.results import Results
from tests.tools.board_capture.rings import watch_rings
from tests.tools.board_capture.stalls import RATES_HZ, ROUNDS, watch_stalls

EVERYTHING: Final = nvml_options(on=[field.name for field in NVML_FIELDS if field.opt_in])
_WAVES: Final = ((1.0, 0.3), (0.3, 0.7), (0.2, 0.2), (2.4, 0.6))
"""Busy and idle seconds of each round."""

_RINGS_S, _ACTIVITY_S, _WAVE_S, _PROFILE_S, _TURN_S, _RECORD_S = 20.0, 6.0, 24.0, 6.0, 2.0, 15.0
_RECORDED_WAVE: Final = (1.5, 1.0)
_STARTS_S: Final = 2.0
"""What `gpumon record` takes to begin."""
_COST_US: Final = 400_000.0
NOMINAL_S: Final = (
    2 * _RINGS_S + 3 * _ACTIVITY_S + len(_WAVES) * _WAVE_S + _PROFILE_S
    + ROUNDS * len(RATES_HZ) * _TURN_S + _RECORD_S + 60.0
)  # fmt: skip
"""What all parts take at full length, with a minute for calls and for the load to start."""

Part = tuple[str, Callable[[], None]]


@dataclass(frozen=True, kw_only=True)
class Session:
    """What all parts of a capture share.

    Attributes:
        clock: The monotonic clock.
        read_clock_ns: Reads a clock by its id.
        index: NVML's number of the GPU.
        pace: What part of its full length each part may take, 0 to 1.
        until_ns: When no part is begun any more.
        open_load: Starts the load; raises ``LoadError``.
        record: Makes the recording, for so many seconds; raises what says why not.
    """

    clock: Clock
    read_clock_ns: Callable[[int], int]
    index: int
    pace: float
    until_ns: int
    open_load: Callable[[ProbedGpu], Load]
    record: Callable[[float], None]

    @contextmanager
    def opened(self) -> Iterator[tuple[NvmlProbe, Board]]:
        """NVML for one part, and the board."""
        limits = ProbeLimits(
            times=1000,
            longest_us=_COST_US * self.pace,
            gpm_times=max(1, round(20 * self.pace)),
            budget_s=60.0,
            dear_too=True,
        )
        probe = NvmlProbe(self.clock, options=EVERYTHING, limits=limits)
        try:
            handle = probe.library.handle_by_index(self.index)
            if handle is None:
                raise SourceUnavailableError("the GPU is lost")
            yield probe, Board(probe.library, handle, self.clock, self.read_clock_ns)
        finally:
            probe.close()


def capture(session: Session, results: Results, keep: Callable[[Results], None]) -> None:
    """Measure part by part; what fails is noted with its reason and the rest goes on.

    Args:
        session: What is measured, and for how long.
        results: Filled part by part.
        keep: Called after each part.
    """

    def measure(parts: Iterator[Part]) -> None:
        for name, part in parts:
            if session.clock.monotonic_ns() > session.until_ns:
                results.missing[name] = "the time was up"
                continue
            print(f"make gpu: {name} ...", flush=True)
            try:
                part()
            except Exception as error:  # noqa: BLE001 (a part that fails must not end the others)
                results.missing[name] = f"{type(error).__name__}: {error}"
            keep(results)

    measure(_on_the_board(session, results, "idle", "idle"))
    try:
        load = session.open_load(results.gpu)
    except LoadError as error:
        for name in ("rings under load", "costs under load", "waves", "activity", "stalls"):
            results.missing[name] = f"there is no load: {error}"
        measure(iter([("recording", partial(_record, session, None))]))
        return
    results.load = load.name
    try:
        measure(_with_load(session, results, load))
    finally:
        load.close()


def _on_the_board(session: Session, results: Results, state: str, name: str) -> Iterator[Part]:
    """The parts that are the same idle and under load; ``state`` is what the board does then."""

    def rings() -> None:
        with session.opened() as (_, board):
            results.rings += watch_rings(board, _RINGS_S * session.pace, state)

    def costs() -> None:
        with session.opened() as (probe, _):
            results.costs[state] = probe.ask_gpu(session.index)

    def activity() -> None:
        with session.opened() as (_, board):
            row = watch_activity(board, _ACTIVITY_S * session.pace, state)
            results.activity.append(row)

    yield f"rings {name}", rings
    yield f"costs {name}", costs
    yield f"activity {name}", activity


def _with_load(session: Session, results: Results, load: Load) -> Iterator[Part]:
    for kind in ("full", "small"):
        state = f"{kind} kernels"
        for name, part in _on_the_board(session, results, state, f"under load, {state}"):
            if kind == "full" or name.startswith("activity"):
                yield name, partial(_while_running, load, kind, part)
    watcher = WaveWatcher(session.clock, results.gpu.uuid or "", session.read_clock_ns)

    def wave(what: str, busy_s: float, idle_s: float, full_s: float) -> None:
        rounds_s = max(full_s * session.pace, 3 * (busy_s + idle_s))
        results.waves += watcher.watch(load, _command(what, busy_s, idle_s, rounds_s))

    for busy_s, idle_s in _WAVES:
        name = f"waves of {busy_s:g} s busy, {idle_s:g} s idle"
        yield name, partial(wave, "wave", busy_s, idle_s, _WAVE_S)
    if load.can_profile:
        yield "waves by the profiler", partial(wave, "profile", 0.5, 0.5, _PROFILE_S)
    else:
        results.missing["waves by the profiler"] = f"{load.name}: no profiler that is known here"

    yield "recording", partial(_record, session, load)

    def stalls() -> None:
        left_s = seconds(session.until_ns - session.clock.monotonic_ns())
        turn_s = min(_TURN_S * session.pace, left_s / (ROUNDS * len(RATES_HZ)))
        results.stalls = watch_stalls(session.clock, load, turn_s, session.read_clock_ns)

    yield "stalls", stalls


def _command(what: str, busy_s: float, idle_s: float, duration_s: float) -> dict[str, Any]:
    return {"do": what, "busy_s": busy_s, "idle_s": idle_s, "seconds": duration_s}


def _record(session: Session, load: Load | None) -> None:
    """A recording of a board that works and pauses, where there is a load."""
    duration_s = max(1.0, _RECORD_S * session.pace)
    if load is not None:
        load.begin(_command("wave", *_RECORDED_WAVE, duration_s + _STARTS_S))
    session.record(duration_s)
    if load is not None:
        load.result()


def _while_running(load: Load, kind: str, measure: Callable[[], None]) -> None:
    load.run(kind)
    try:
        measure()
    finally:
        load.stop()

"""Measures one board part by part; what fails is noted, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gpumon.core.clock import Clock
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.fields.table import NVML_FIELDS, nvml_options
from gpumon.sources.nvml.probe.probe import NvmlProbe, ProbeLimits
from gpumon.sources.nvml.probe.probed import ProbedGpu
from tests.tools.board_capture.accuracy import WaveWatcher
from tests.tools.board_capture.activity import ActivityWatcher
from tests.tools.board_capture.load import Load, LoadError
from tests.tools.board_capture.results import Results
from tests.tools.board_capture.rings import RingWatcher
from tests.tools.board_capture.stalls import RATES_HZ, ROUNDS, StallWatcher

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


def capture(session: Session, results: Results, keep: Callable[[Results], None]) -> None:
    """Measure part by part; what fails is noted with its reason and the rest goes on.

    Args:
        session: What is measured, and for how long.
        results: Filled part by part.
        keep: Called after each part.
    """
    _parts(session, results, keep, _without_load(session, results))
    try:
        load = session.open_load(results.gpu)
    except LoadError as error:
        for name in ("rings under load", "costs under load", "waves", "activity", "stalls"):
            results.missing[name] = f"there is no load: {error}"
        _parts(session, results, keep, iter([("recording", lambda: _recording(session, None))]))
        return
    results.load = load.name
    try:
        _parts(session, results, keep, _with_load(session, results, load))
    finally:
        load.close()


Part = tuple[str, Callable[[], None]]


def _parts(
    session: Session, results: Results, keep: Callable[[Results], None], parts: Iterator[Part]
) -> None:
    for name, measure in parts:
        if session.clock.monotonic_ns() > session.until_ns:
            results.missing[name] = "the time was up"
            continue
        print(f"make gpu: {name} ...", flush=True)
        trouble = _trouble(measure)
        if trouble is not None:
            results.missing[name] = trouble
        keep(results)


def _trouble(measure: Callable[[], None]) -> str | None:
    try:
        measure()
    except Exception as error:  # noqa: BLE001 (a part that fails must not end the others)
        return f"{type(error).__name__}: {error}"
    return None


def _without_load(session: Session, results: Results) -> Iterator[Part]:
    with_idle = _Parts(session, results, "idle")
    yield "rings idle", with_idle.rings
    yield "costs idle", with_idle.costs
    yield "activity idle", with_idle.activity


def _with_load(session: Session, results: Results, load: Load) -> Iterator[Part]:
    for kind in ("full", "small"):
        busy = _Parts(session, results, f"{kind} kernels")
        parts = {"rings": busy.rings, "costs": busy.costs, "activity": busy.activity}
        for name, measure in parts.items():
            if kind == "full" or name == "activity":
                yield f"{name} under load, {kind} kernels", _running(load, kind, measure)
    watcher = WaveWatcher(session.clock, results.gpu.uuid or "", session.read_clock_ns)

    def wave(what: str, busy_s: float, idle_s: float, seconds: float) -> None:
        rounds_s = max(seconds * session.pace, 3 * (busy_s + idle_s))
        command = {"do": what, "busy_s": busy_s, "idle_s": idle_s, "seconds": rounds_s}
        results.waves += watcher.watch(load, command)

    for busy_s, idle_s in _WAVES:
        name = f"waves of {busy_s:g} s busy, {idle_s:g} s idle"
        yield name, lambda busy_s=busy_s, idle_s=idle_s: wave("wave", busy_s, idle_s, _WAVE_S)  # type: ignore[misc]
    if load.can_profile:
        yield "waves by the profiler", lambda: wave("profile", 0.5, 0.5, _PROFILE_S)
    else:
        results.missing["waves by the profiler"] = f"{load.name}: no profiler that is known here"

    yield "recording", lambda: _recording(session, load)

    def stalls() -> None:
        watcher = StallWatcher(session.clock, session.read_clock_ns)
        left_s = (session.until_ns - session.clock.monotonic_ns()) / 1e9
        turn_s = min(_TURN_S * session.pace, left_s / (ROUNDS * len(RATES_HZ)))
        results.stalls = watcher.watch(load, turn_s)

    yield "stalls", stalls


def _recording(session: Session, load: Load | None) -> None:
    """A recording of a board that works and pauses, where there is a load."""
    seconds = max(1.0, _RECORD_S * session.pace)
    busy_s, idle_s = _RECORDED_WAVE
    if load is not None:
        wave = {"do": "wave", "busy_s": busy_s, "idle_s": idle_s, "seconds": seconds + _STARTS_S}
        load.begin(wave)
    session.record(seconds)
    if load is not None:
        load.result()


def _running(load: Load, kind: str, measure: Callable[[], None]) -> Callable[[], None]:
    def measured() -> None:
        load.run(kind)
        try:
            measure()
        finally:
            load.stop()

    return measured


class _Parts:
    """The parts that are the same idle and under load."""

    def __init__(self, session: Session, results: Results, load: str) -> None:
        self._session, self._results, self._load = session, results, load

    def rings(self) -> None:
        session = self._session
        with _Opened(session) as (probe, handle):
            watcher = RingWatcher(probe.library, handle, session.clock, session.read_clock_ns)
            self._results.rings += watcher.watch(_RINGS_S * session.pace, self._load)

    def costs(self) -> None:
        with _Opened(self._session, longest_us=_COST_US * self._session.pace) as (probe, _):
            self._results.costs[self._load] = probe.ask_gpu(self._session.index)

    def activity(self) -> None:
        session = self._session
        with _Opened(session) as (probe, handle):
            watcher = ActivityWatcher(probe.library, handle, session.clock)
            self._results.activity.append(watcher.watch(_ACTIVITY_S * session.pace, self._load))


class _Opened:
    """NVML for one part, and the GPU's handle."""

    def __init__(self, session: Session, *, longest_us: float = _COST_US) -> None:
        self._session = session
        limits = ProbeLimits(
            times=1000,
            longest_us=longest_us,
            gpm_times=max(1, round(20 * session.pace)),
            budget_s=60.0,
            dear_too=True,
        )
        self._probe = NvmlProbe(session.clock, options=EVERYTHING, limits=limits)

    def __enter__(self) -> tuple[NvmlProbe, int]:
        handle = self._probe.library.handle_by_index(self._session.index)
        if handle is None:
            self._probe.close()
            raise SourceUnavailableError("the GPU is lost")
        return self._probe, handle

    def __exit__(self, *_: object) -> None:
        self._probe.close()

"""Measures one board part by part; a part that fails is recorded, and the others continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gpumon.cli.doctor.driver_answers import GpuAnswers
from gpumon.cli.doctor.sampler_run import run_sampler
from gpumon.core.clock import Clock, seconds
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.table import NVML_FIELDS, nvml_options
from tests.tools.board_capture.accuracy import watch_wave
from tests.tools.board_capture.load import Load, LoadError
from tests.tools.board_capture.measurements import (
    RATES_HZ,
    ROUNDS,
    Board,
    Results,
    watch_activity,
    watch_rings,
    watch_stalls,
)

EVERYTHING: Final = nvml_options(on=[field.name for field in NVML_FIELDS if field.opt_in])
_WAVES: Final = ((1.0, 0.3), (0.3, 0.7), (0.2, 0.2), (2.4, 0.6))
"""Busy and idle seconds of each round."""

_RINGS_S, _ACTIVITY_S, _WAVE_S, _TURN_S, _RECORD_S = 20.0, 6.0, 24.0, 2.0, 15.0
_RECORDED_WAVE: Final = (1.5, 1.0)
_STARTS_S: Final = 2.0
"""What `gpumon record` takes to begin."""
_COST_READINGS, _COST_EVERY_S = 100, 0.2
NOMINAL_S: Final = (
    2 * _RINGS_S + 3 * _ACTIVITY_S + len(_WAVES) * _WAVE_S
    + ROUNDS * len(RATES_HZ) * _TURN_S + _RECORD_S + 60.0
)  # fmt: skip
"""What all parts take at full length, with a minute for calls and for the load to start."""

Part = tuple[str, Callable[[], None]]


@dataclass(frozen=True, kw_only=True)
class Capture:
    """One capture of one board.

    Attributes:
        pace: The length of each part, 0 to 1 of the full length.
        until_ns: No part starts after this time.
        open_load: Starts the load; raises ``LoadError``.
        record: Makes a recording of so many seconds, or raises the reason.
        keep: Called after each part.
    """

    clock: Clock
    read_clock_ns: Callable[[int], int]
    pace: float
    until_ns: int
    open_load: Callable[[GpuAnswers], Load]
    record: Callable[[float], None]
    results: Results
    keep: Callable[[], object]

    def measure(self) -> None:
        self._each(self._on_the_board("idle"))
        try:
            load = self.open_load(self.results.gpu)
        except LoadError as error:
            for name in ("rings under load", "costs under load", "waves", "activity", "stalls"):
                self.results.missing[name] = f"there is no load: {error}"
            self._each([("recording", partial(self._record, None))])
            return
        self.results.load = load.name
        try:
            self._each(self._with(load))
        finally:
            load.close()

    def _each(self, parts: list[Part]) -> None:
        for name, part in parts:
            if self.clock.monotonic_ns() > self.until_ns:
                self.results.missing[name] = "the time was up"
                continue
            print(f"make gpu: {name} ...", flush=True)
            try:
                part()
            except Exception as error:  # noqa: BLE001 (one must not end the others)
                self.results.missing[name] = f"{type(error).__name__}: {error}"
            self.keep()

    def _on_the_board(self, state: str) -> list[Part]:
        """The parts that are measured both idle and under load."""
        parts = {"rings": self._rings, "costs": self._costs, "activity": self._activity}
        return [(f"{name}, {state}", partial(part, state)) for name, part in parts.items()]

    def _with(self, load: Load) -> list[Part]:
        parts = []
        for kind in ("full", "small"):
            for name, part in self._on_the_board(f"{kind} kernels"):
                if kind == "full" or name.startswith("activity"):
                    parts.append((name, partial(_while_running, load, kind, part)))
        for wave in _WAVES:
            name = "waves of {:g} s busy, {:g} s idle".format(*wave)
            parts.append((name, partial(self._wave, load, *wave)))
        parts.append(("recording", partial(self._record, load)))
        return [*parts, ("stalls", partial(self._stalls, load))]

    @contextmanager
    def _opened(self) -> Iterator[Board]:
        """The board, for one part."""
        with closing(NvmlLibrary()) as library:
            handle = library.handle_by_index(self.results.gpu.index)
            if handle is None:
                raise SourceUnavailableError("the GPU is lost")
            yield Board(library, handle, self.clock, self.read_clock_ns)

    def _rings(self, state: str) -> None:
        with self._opened() as board:
            self.results.rings += watch_rings(board, _RINGS_S * self.pace, state)

    def _costs(self, state: str) -> None:
        readings = max(3, round(_COST_READINGS * self.pace))
        _, driver = run_sampler(self.clock, EVERYTHING, readings=readings, every_s=_COST_EVERY_S)
        self.results.costs[state] = driver.gpus[self.results.gpu.index]

    def _activity(self, state: str) -> None:
        with self._opened() as board:
            self.results.activity.append(watch_activity(board, _ACTIVITY_S * self.pace, state))

    def _wave(self, load: Load, busy_s: float, idle_s: float) -> None:
        command = _wave(busy_s, idle_s, max(_WAVE_S * self.pace, 3 * (busy_s + idle_s)))
        uuid = self.results.gpu.uuid or ""
        self.results.waves.append(watch_wave(self.clock, uuid, load, command, self.read_clock_ns))

    def _record(self, load: Load | None) -> None:
        """A recording of a board that works and pauses, where there is a load."""
        duration_s = max(1.0, _RECORD_S * self.pace)
        if load is not None:
            load.begin(_wave(*_RECORDED_WAVE, duration_s + _STARTS_S))
        self.record(duration_s)
        if load is not None:
            load.result()

    def _stalls(self, load: Load) -> None:
        left_s = seconds(self.until_ns - self.clock.monotonic_ns())
        turn_s = min(_TURN_S * self.pace, left_s / (ROUNDS * len(RATES_HZ)))
        self.results.stalls = watch_stalls(self.clock, load, turn_s, self.read_clock_ns)


def _wave(busy_s: float, idle_s: float, duration_s: float) -> dict[str, Any]:
    return {"do": "wave", "busy_s": busy_s, "idle_s": idle_s, "seconds": duration_s}


def _while_running(load: Load, kind: str, measure: Callable[[], None]) -> None:
    load.run(kind)
    try:
        measure()
    finally:
        load.stop()

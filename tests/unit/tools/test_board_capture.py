"""Specification of the capture: on a board of which all is known, it finds just that."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.probe.probe import NvmlProbe, ProbeLimits
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.signals import clock_offset_us
from tests.tools.board_capture import capture as capturing
from tests.tools.board_capture import load as loading
from tests.tools.board_capture.__main__ import CaptureError
from tests.tools.board_capture.accuracy import WaveWatcher
from tests.tools.board_capture.activity import watch_activity
from tests.tools.board_capture.board import Board
from tests.tools.board_capture.capture import EVERYTHING, Session, capture
from tests.tools.board_capture.load import ChildLoad, Load, LoadError
from tests.tools.board_capture.page import board_page
from tests.tools.board_capture.profile_trace import MARK, kernel_spans
from tests.tools.board_capture.results import Results, RingWatch, WaveAccuracy
from tests.tools.board_capture.rings import BETWEEN_LOOKS_S, watch_rings
from tests.tools.board_capture.stalls import watch_stalls
from tests.tools.board_capture.windows import BusyTruth, fit_window
from tests.unit.tools.fake_load import BoardClock, FakeLoad

S = 1_000_000_000


@pytest.fixture
def board(fake_nvml: FakeNvml) -> Iterator[Board]:
    library, clock = NvmlLibrary(), BoardClock(fake_nvml)
    handle = library.handle_by_index(0)
    assert handle is not None
    yield Board(library, handle, clock, clock.read_clock_ns)
    library.close()


def watched(board: Board, kind: str = "gpu_utilization", seconds: float = 6.0) -> RingWatch:
    return {ring.name: ring for ring in watch_rings(board, seconds, "idle")}[kind]


def waved(fake: FakeNvml, load: Load, **command: Any) -> list[WaveAccuracy]:
    clock = BoardClock(fake)
    watcher = WaveWatcher(clock, fake.uuid(0), clock.read_clock_ns)
    return watcher.watch(load, {"do": "wave", "seconds": 16.0, **command})


class TestTheRings:
    def test_are_found_with_the_cadence_and_depth_they_have(
        self, fake_nvml: FakeNvml, board: Board
    ) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=0.5, window_s=0.2)
        fake_nvml.gpu(0).ring_depth = 40

        ring = watched(board)

        assert ring.depth == 40
        assert ring.cadence_s is not None
        assert (ring.cadence_s.p05, ring.cadence_s.p95) == pytest.approx((0.2, 0.2))
        assert ring.arrived == pytest.approx(30, abs=1)
        assert ring.batch == 1

    @pytest.mark.parametrize("late_s", [0.0, 0.05, 0.3])
    def test_are_found_with_the_delay_they_have(
        self, fake_nvml: FakeNvml, board: Board, late_s: float
    ) -> None:
        fake_nvml.publish_late(0, by_s=late_s)

        ring = watched(board)

        assert ring.delay_s is not None
        assert late_s <= ring.delay_s.p05 <= ring.delay_s.p95 <= late_s + BETWEEN_LOOKS_S

    @pytest.mark.parametrize(
        ("clock_id", "names"),
        [
            (time.CLOCK_REALTIME, {"realtime"}),
            # They differ by the time that the machine was asleep.
            (time.CLOCK_MONOTONIC, {"monotonic", "boottime"}),
        ],
    )
    def test_are_found_with_the_clock_that_stamps_them(
        self, fake_nvml: FakeNvml, board: Board, clock_id: int, names: set[str]
    ) -> None:
        fake_nvml.stamps_count(clock_offset_us(clock_id))

        assert watched(board, seconds=1.0).clock in names

    def test_that_slow_down_while_idle_are_found_so(
        self, fake_nvml: FakeNvml, board: Board
    ) -> None:
        fake_nvml.slow_when_idle(0, every_s=1.0)
        load = FakeLoad(fake_nvml)

        idle = watched(board, "power").cadence_s
        load.run("full")
        busy = watched(board, "power").cadence_s

        assert idle is not None
        assert busy is not None
        assert (idle.median, busy.median) == pytest.approx((1.0, 0.02))

    def test_that_the_board_does_not_keep_are_left_out(self, board: Board) -> None:
        names = [ring.name for ring in watch_rings(board, 0.5, "idle")]

        assert names == ["power", "gpu_utilization"]


class TestAWave:
    @pytest.mark.parametrize("window_s", [1 / 6, 0.25])
    def test_shows_which_stretch_a_sample_speaks_for(
        self, fake_nvml: FakeNvml, window_s: float
    ) -> None:
        load = FakeLoad(fake_nvml, window_s=window_s)

        (found,) = waved(fake_nvml, load, busy_s=0.7, idle_s=0.43)

        assert found.fit is not None
        assert found.fit.window_s == pytest.approx(window_s, abs=0.004)
        assert found.fit.lag_s == pytest.approx(0.0, abs=0.004)
        assert found.fit.error_ratio < 0.01

    def test_is_held_against_what_gpumon_made_of_it(self, fake_nvml: FakeNvml) -> None:
        load = FakeLoad(fake_nvml)

        by_kernels, by_stamps = waved(fake_nvml, load, do="profile", busy_s=1.3, idle_s=0.7)

        assert by_kernels.truth == "the profiler's kernels"
        assert by_kernels.true_busy_ratio == by_stamps.true_busy_ratio
        assert 0.6 < by_stamps.true_busy_ratio < 0.7  # not of whole rounds
        assert by_stamps.seen_busy_ratio == pytest.approx(by_stamps.true_busy_ratio, abs=0.005)
        assert by_stamps.error_ratio < 0.006  # NVML's percents are whole
        assert (by_stamps.span_s, by_stamps.device_span_s) == pytest.approx((1.3, 1.299))
        assert by_stamps.seen_pauses == by_stamps.true_pauses == 7
        assert by_stamps.seen_pause_s == pytest.approx(0.7, abs=0.02)

    def test_that_the_board_did_not_see_has_no_window_in_the_page(
        self, fake_nvml: FakeNvml
    ) -> None:
        class Elsewhere(FakeLoad):
            """Computes on another board than the one that is watched."""

            def _wave(self, period_s: float, busy_ratio: float, phase_s: float = 0.0) -> None:
                fake_nvml.wave(0, period_s=0.9, busy_ratio=0.4)

        results = results_of(fake_nvml)
        results.waves += waved(fake_nvml, Elsewhere(fake_nvml), busy_s=0.7, idle_s=0.43)

        assert "| none fits | - |" in board_page(results)


class TestAWindow:
    def test_that_lags_behind_its_stamp_is_found_to_lag(self) -> None:
        truth = BusyTruth([(at * S, at * S + 430_000_000) for at in range(30)])
        window_ns, lag_ns = 300_000_000, 80_000_000
        samples = [
            (at_ns, truth.busy_ns(at_ns - lag_ns - window_ns, at_ns - lag_ns) / window_ns)
            for at_ns in range(5 * S, 25 * S, 170_000_000)
        ]

        fit = fit_window(truth, samples, cadence_s=0.17)

        assert fit is not None
        assert (fit.window_s, fit.lag_s) == pytest.approx((0.3, 0.08), abs=0.003)

    def test_is_unknown_without_a_sample(self) -> None:
        assert fit_window(BusyTruth([(0, S)]), [], cadence_s=0.2) is None


class TestActivity:
    def test_of_a_small_and_a_full_kernel_differs_where_utilisation_does_not(
        self, fake_nvml: FakeNvml, board: Board
    ) -> None:
        load = FakeLoad(fake_nvml)
        load.run("full")
        full = watch_activity(board, 3.0, "full")
        load.run("small")
        small = watch_activity(board, 3.0, "small")

        assert (full.utilisation_ratio, small.utilisation_ratio) == (1.0, 1.0)
        assert full.sm_active_ratio == pytest.approx(0.9, abs=0.01)
        assert small.sm_active_ratio == pytest.approx(0.05, abs=0.01)
        assert full.power_limit_watts == 700.0


class TestStalls:
    def test_show_in_the_steps_of_the_training_beside_it(self, fake_nvml: FakeNvml) -> None:
        clock = BoardClock(fake_nvml)

        rows = watch_stalls(clock, FakeLoad(fake_nvml), 4.0, clock.read_clock_ns)

        none, again, slow, quick = rows
        assert none.steps_per_second == again.steps_per_second == 1_000
        assert quick.steps_per_second < slow.steps_per_second < 1_000
        assert again.of_bare_ratio == 1.0
        assert quick.of_bare_ratio == pytest.approx(quick.steps_per_second / 1_000)
        assert quick.middle_half[0] <= quick.of_bare_ratio <= quick.middle_half[1]
        assert (none.nvml_seconds_per_second, none.rounds) == (0.0, 9)
        assert quick.nvml_seconds_per_second > 0.0


def results_of(fake: FakeNvml) -> Results:
    probe = NvmlProbe(BoardClock(fake), options=EVERYTHING, limits=ProbeLimits(times=1))
    driver = probe.ask_all()
    probe.close()
    return Results(
        board="Board",
        driver=driver,
        gpu=driver.gpus[0],
        command="make gpu",
        date="2026-11-22",
        python="Python",
    )


def captured(
    fake: FakeNvml,
    *,
    refused: str | None = None,
    record: Callable[[float], None] = lambda duration_s: None,
    after_s: float = 0.0,
    keep: Callable[[Results], None] = lambda so_far: None,
) -> Results:
    """What a capture finds on the fake board.

    Args:
        fake: The board.
        refused: Why there is no load.
        record: Makes the recording.
        after_s: How long its beginning takes.
        keep: Is given what there is after each part.
    """

    def open_load(_: object) -> Load:
        if refused is not None:
            raise LoadError(refused)
        return FakeLoad(fake)

    clock = BoardClock(fake)
    session = Session(
        clock=clock,
        read_clock_ns=clock.read_clock_ns,
        index=0,
        pace=0.2,
        until_ns=clock.monotonic_ns() + 600 * S,
        open_load=open_load,
        record=record,
    )
    results = results_of(fake)
    fake.advance(after_s)
    capture(session, results, keep)
    return results


class TestACapture:
    @pytest.fixture(autouse=True)
    def few_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(capturing, "_COST_US", 20_000.0)

    def test_measures_every_part_and_keeps_a_page_after_each(self, fake_nvml: FakeNvml) -> None:
        pages: list[str] = []

        results = captured(fake_nvml, keep=lambda so_far: pages.append(board_page(so_far)))

        assert results.missing == {}
        assert len(pages) == 14
        assert "Not measured" in pages[0]
        assert "Not measured" not in pages[-1]
        for told in ("1 s busy, 0.3 s idle", "gpumon at 10 Hz", "small kernels", "a fake load"):
            assert told in pages[-1], told

    def test_tells_what_a_call_costs_as_the_driver_has_it(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.delay("nvmlDeviceGetFanSpeed", 2_000)

        results = captured(fake_nvml)

        assert results.costs
        for gpu in results.costs.values():
            calls = {field.field.name: field.calls[0] for field in gpu.fields}
            fan, power = calls["fan"], calls["power"]
            assert fan.median_us is not None
            assert power.median_us is not None
            # How much longer a call takes than it was told to is the machine's affair.
            assert min(fan.durations_us) >= 2_000
            assert fan.median_us > 10 * power.median_us
            assert len(power.durations_us) > len(fan.durations_us)

    def test_without_a_load_measures_the_rest_and_says_why(self, fake_nvml: FakeNvml) -> None:
        recorded: list[float] = []

        results = captured(fake_nvml, refused="torch: it sees no GPU", record=recorded.append)

        page = board_page(results)
        assert "## Does reading slow a training down\n\nNot measured: there is no load" in page
        assert "torch: it sees no GPU" in page
        assert [ring.name for ring in results.rings] == ["power", "gpu_utilization"]
        assert len(recorded) == 1  # of an idle board

    def test_records_a_board_that_works_and_pauses(self, fake_nvml: FakeNvml, board: Board) -> None:
        seen: list[float] = []

        def record(_: float) -> None:
            until_ns = board.clock.monotonic_ns() + 3 * S
            while board.clock.monotonic_ns() < until_ns:
                seen.append(watch_activity(board, 0.1, "wave").utilisation_ratio or 0.0)

        captured(fake_nvml, record=record)

        assert (min(seen), max(seen)) == (0.0, 1.0)

    def test_says_why_there_is_no_recording(self, fake_nvml: FakeNvml) -> None:
        def record(_: float) -> None:
            raise CaptureError("the disk is full")

        page = board_page(captured(fake_nvml, record=record))

        assert "- recording: CaptureError: the disk is full" in page

    def test_goes_on_where_a_part_fails(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.fail("nvmlDeviceGetSamples", codes.NOT_SUPPORTED)
        fake_nvml.fail("nvmlDeviceGetUtilizationRates", codes.NOT_SUPPORTED)

        results = captured(fake_nvml)

        assert "no utilisation sample came" in results.missing["waves of 1 s busy, 0.3 s idle"]
        assert results.stalls

    def test_begins_nothing_more_when_the_time_is_up(self, fake_nvml: FakeNvml) -> None:
        results = captured(fake_nvml, after_s=601.0)

        assert set(results.missing.values()) == {"the time was up"}


class TestTheProfilersKernels:
    def test_are_moved_to_the_monotonic_clock_by_the_mark_that_came_soonest(self) -> None:
        marks = [(1_000_000, 9_000.9), (2_000_000, 10_000.1), (3_000_000, 11_000.3)]
        trace = {
            "traceEvents": [
                *(
                    {"cat": "user_annotation", "name": f"{MARK}{ns}", "ts": ts, "dur": 1.0}
                    for ns, ts in marks
                ),
                {"cat": "kernel", "name": "b", "ts": 20_000.1, "dur": 500.0},
                {"cat": "kernel", "name": "a", "ts": 12_000.1, "dur": 100.0},
                {"cat": "gpu_memcpy", "name": "c", "ts": 12_120.1, "dur": 80.0},
                {"cat": "cpu_op", "name": "d", "ts": 12_000.1, "dur": 9_000.0},
            ]
        }

        spans = kernel_spans(json.dumps(trace))

        assert spans == [(4_000_000, 4_200_000), (12_000_000, 12_500_000)]

    def test_without_a_mark_are_refused(self) -> None:
        with pytest.raises(ValueError, match="none of the marks"):
            kernel_spans('{"traceEvents": []}')


class TestTheProcessThatComputes:
    def test_says_why_where_it_cannot(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("torch", "jax"):
            (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name} for this board')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

        with pytest.raises(LoadError, match=r"torch: .*no torch for this board.*; jax: "):
            ChildLoad(gpu_uuid="GPU-0")

    def test_that_ends_is_told_of(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        silent = tmp_path / "silent.py"
        silent.write_text("raise SystemExit(0)")
        monkeypatch.setattr(loading, "_PROGRAM", silent)

        with pytest.raises(LoadError, match="has ended"):
            ChildLoad(gpu_uuid=None)

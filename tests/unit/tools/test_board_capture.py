"""Specification of the capture: on a board of which all is known, it finds just that."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.probe.probe import NvmlProbe, ProbeLimits
from tests.fakenvml.control import NOT_SUPPORTED, FakeNvml, clock_offset_us
from tests.tools.board_capture import capture as capturing
from tests.tools.board_capture import load as loading
from tests.tools.board_capture.__main__ import CaptureError
from tests.tools.board_capture.accuracy import WaveWatcher
from tests.tools.board_capture.activity import ActivityWatcher
from tests.tools.board_capture.capture import EVERYTHING, Session, capture
from tests.tools.board_capture.load import ChildLoad, Load, LoadError
from tests.tools.board_capture.page import board_page
from tests.tools.board_capture.profile_trace import MARK, kernel_spans
from tests.tools.board_capture.results import Results, RingWatch
from tests.tools.board_capture.rings import BETWEEN_LOOKS_S, RingWatcher
from tests.tools.board_capture.stalls import StallWatcher
from tests.tools.board_capture.windows import BusyTruth, fit_window
from tests.unit.tools.fake_load import BoardClock, FakeLoad

S = 1_000_000_000


@pytest.fixture
def library(fake_nvml: FakeNvml) -> Iterator[NvmlLibrary]:
    opened = NvmlLibrary()
    yield opened
    opened.close()


def handle_of(library: NvmlLibrary) -> int:
    handle = library.handle_by_index(0)
    assert handle is not None
    return handle


def watched(library: NvmlLibrary, clock: BoardClock, seconds: float = 6.0) -> dict[str, RingWatch]:
    watcher = RingWatcher(library, handle_of(library), clock, clock.read_clock_ns)
    return {ring.name: ring for ring in watcher.watch(seconds, "idle")}


class TestTheRings:
    def test_are_found_with_the_cadence_and_depth_they_have(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=0.5, window_s=0.2)
        fake_nvml.gpu(0).ring_depth = 40

        ring = watched(library, BoardClock(fake_nvml))["gpu_utilization"]

        assert ring.depth == 40
        assert ring.cadence_s is not None
        assert (ring.cadence_s.p05, ring.cadence_s.p95) == pytest.approx((0.2, 0.2))
        assert ring.arrived == pytest.approx(30, abs=1)
        assert ring.batch == 1

    @pytest.mark.parametrize("late_s", [0.0, 0.05, 0.3])
    def test_are_found_with_the_delay_they_have(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, late_s: float
    ) -> None:
        fake_nvml.publish_late(0, by_s=late_s)

        ring = watched(library, BoardClock(fake_nvml))["gpu_utilization"]

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
        self, fake_nvml: FakeNvml, library: NvmlLibrary, clock_id: int, names: set[str]
    ) -> None:
        fake_nvml.stamps_count(clock_offset_us(clock_id))

        assert watched(library, BoardClock(fake_nvml), 1.0)["gpu_utilization"].clock in names

    def test_that_slow_down_while_idle_are_found_so(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        fake_nvml.slow_when_idle(0, every_s=1.0)
        clock = BoardClock(fake_nvml)
        load = FakeLoad(fake_nvml)

        idle = watched(library, clock)["power"].cadence_s
        load.run("full")
        busy = watched(library, clock)["power"].cadence_s

        assert idle is not None
        assert busy is not None
        assert (idle.median, busy.median) == pytest.approx((1.0, 0.02))

    def test_that_the_board_does_not_keep_are_left_out(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        assert set(watched(library, BoardClock(fake_nvml), 0.5)) == {"power", "gpu_utilization"}


class TestAWave:
    @pytest.mark.parametrize("window_s", [1 / 6, 0.25])
    def test_shows_which_stretch_a_sample_speaks_for(
        self, fake_nvml: FakeNvml, window_s: float
    ) -> None:
        clock, load = BoardClock(fake_nvml), FakeLoad(fake_nvml, window_s=window_s)
        command = {"do": "wave", "busy_s": 0.7, "idle_s": 0.43, "seconds": 16.0}

        (found,) = WaveWatcher(clock, fake_nvml.uuid(0), clock.read_clock_ns).watch(load, command)

        assert found.fit is not None
        assert found.fit.window_s == pytest.approx(window_s, abs=0.004)
        assert found.fit.lag_s == pytest.approx(0.0, abs=0.004)
        assert found.fit.error_ratio < 0.01

    def test_is_held_against_what_gpumon_made_of_it(self, fake_nvml: FakeNvml) -> None:
        clock, load = BoardClock(fake_nvml), FakeLoad(fake_nvml)
        command = {"do": "profile", "busy_s": 1.3, "idle_s": 0.7, "seconds": 16.0}
        watcher = WaveWatcher(clock, fake_nvml.uuid(0), clock.read_clock_ns)

        by_kernels, by_stamps = watcher.watch(load, command)

        assert by_kernels.truth == "the profiler's kernels"
        assert by_kernels.true_busy_ratio == by_stamps.true_busy_ratio
        assert 0.6 < by_stamps.true_busy_ratio < 0.7  # not of whole rounds
        assert by_stamps.seen_busy_ratio == pytest.approx(by_stamps.true_busy_ratio, abs=0.005)
        assert by_stamps.error_ratio < 0.006  # NVML's percents are whole
        assert (by_stamps.span_s, by_stamps.device_span_s) == pytest.approx((1.3, 1.299))
        assert by_stamps.seen_pauses == by_stamps.true_pauses == 7
        assert by_stamps.seen_pause_s == pytest.approx(0.7, abs=0.02)


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


class TestAWaveThatTheBoardDidNotSee:
    def test_has_no_window_in_the_page(self, fake_nvml: FakeNvml) -> None:
        class Elsewhere(FakeLoad):
            """Computes on another board than the one that is watched."""

            def _wave(self, period_s: float, busy_ratio: float, phase_s: float = 0.0) -> None:
                fake_nvml.wave(0, period_s=0.9, busy_ratio=0.4)

        session, results = a_session(fake_nvml, lambda gpu: Elsewhere(fake_nvml))
        clock = session.clock
        assert isinstance(clock, BoardClock)
        watcher = WaveWatcher(clock, fake_nvml.uuid(0), clock.read_clock_ns)
        command = {"do": "wave", "busy_s": 0.7, "idle_s": 0.43, "seconds": 16.0}

        results.waves += watcher.watch(Elsewhere(fake_nvml), command)

        assert "| none fits | - |" in board_page(results)


class TestActivity:
    def test_of_a_small_and_a_full_kernel_differs_where_utilisation_does_not(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        clock, load = BoardClock(fake_nvml), FakeLoad(fake_nvml)
        watcher = ActivityWatcher(library, handle_of(library), clock)
        load.run("full")
        full = watcher.watch(3.0, "full")
        load.run("small")
        small = watcher.watch(3.0, "small")

        assert (full.utilisation_ratio, small.utilisation_ratio) == (1.0, 1.0)
        assert full.sm_active_ratio == pytest.approx(0.9, abs=0.01)
        assert small.sm_active_ratio == pytest.approx(0.05, abs=0.01)
        assert full.power_limit_watts == 700.0


class TestStalls:
    def test_show_in_the_steps_of_the_training_beside_it(self, fake_nvml: FakeNvml) -> None:
        clock = BoardClock(fake_nvml)

        none, again, slow, quick = StallWatcher(clock, clock.read_clock_ns).watch(
            FakeLoad(fake_nvml), 4.0
        )

        assert none.steps_per_second == again.steps_per_second == 1_000
        assert quick.steps_per_second < slow.steps_per_second < 1_000
        assert again.of_bare_ratio == 1.0
        assert quick.of_bare_ratio == pytest.approx(quick.steps_per_second / 1_000)
        assert quick.middle_half[0] <= quick.of_bare_ratio <= quick.middle_half[1]
        assert (none.nvml_seconds_per_second, none.rounds) == (0.0, 9)
        assert quick.nvml_seconds_per_second > 0.0


def a_session(
    fake: FakeNvml,
    open_load: Callable[[object], Load],
    record: Callable[[float], None] = lambda seconds: None,
) -> tuple[Session, Results]:
    clock = BoardClock(fake)
    probe = NvmlProbe(clock, options=EVERYTHING, limits=ProbeLimits(times=1))
    driver = probe.ask_all()
    probe.close()
    session = Session(
        clock=clock,
        read_clock_ns=clock.read_clock_ns,
        index=0,
        pace=0.2,
        until_ns=clock.monotonic_ns() + 600 * S,
        open_load=open_load,
        record=record,
    )
    results = Results(
        board="Board",
        driver=driver,
        gpu=driver.gpus[0],
        command="make gpu",
        date="2026-11-22",
        python="Python",
    )
    return session, results


class TestACapture:
    @pytest.fixture(autouse=True)
    def few_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(capturing, "_COST_US", 20_000.0)

    def test_measures_every_part_and_keeps_a_page_after_each(self, fake_nvml: FakeNvml) -> None:
        session, results = a_session(fake_nvml, lambda gpu: FakeLoad(fake_nvml))
        pages: list[str] = []

        capture(session, results, lambda so_far: pages.append(board_page(so_far)))

        assert results.missing == {}
        assert len(pages) == 14
        assert "Not measured" in pages[0]
        assert "Not measured" not in pages[-1]
        for told in ("1 s busy, 0.3 s idle", "gpumon at 10 Hz", "small kernels", "a fake load"):
            assert told in pages[-1], told

    def test_tells_what_a_call_costs_as_the_driver_has_it(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.delay("nvmlDeviceGetFanSpeed", 2_000)
        session, results = a_session(fake_nvml, lambda gpu: FakeLoad(fake_nvml))

        capture(session, results, lambda so_far: None)

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
        def refuse(gpu: object) -> Load:
            raise LoadError("torch: it sees no GPU")

        session, results = a_session(fake_nvml, refuse)

        capture(session, results, lambda so_far: None)

        page = board_page(results)
        assert "## Does reading slow a training down\n\nNot measured: there is no load" in page
        assert "torch: it sees no GPU" in page
        assert [ring.name for ring in results.rings] == ["power", "gpu_utilization"]

    def test_records_a_board_that_works_and_pauses(self, fake_nvml: FakeNvml) -> None:
        load = FakeLoad(fake_nvml)
        seen: list[float] = []

        def record(seconds: float) -> None:
            handle, until_ns = library.handle_by_index(0), clock.monotonic_ns() + round(3e9)
            watcher = ActivityWatcher(library, handle or 0, clock)
            while clock.monotonic_ns() < until_ns:
                seen.append(watcher.watch(0.1, "wave").utilisation_ratio or 0.0)

        session, results = a_session(fake_nvml, lambda gpu: load, record)
        clock, library = session.clock, NvmlLibrary()
        capture(session, results, lambda so_far: None)
        library.close()

        assert (min(seen), max(seen)) == (0.0, 1.0)

    def test_records_an_idle_board_where_there_is_no_load(self, fake_nvml: FakeNvml) -> None:
        def refuse(gpu: object) -> Load:
            raise LoadError("no torch")

        recorded: list[float] = []
        session, results = a_session(fake_nvml, refuse, recorded.append)
        capture(session, results, lambda so_far: None)

        assert len(recorded) == 1

    def test_says_why_there_is_no_recording(self, fake_nvml: FakeNvml) -> None:
        def record(seconds: float) -> None:
            raise CaptureError("the disk is full")

        session, results = a_session(fake_nvml, lambda gpu: FakeLoad(fake_nvml), record)
        capture(session, results, lambda so_far: None)

        assert "- recording: CaptureError: the disk is full" in board_page(results)

    def test_goes_on_where_a_part_fails(self, fake_nvml: FakeNvml) -> None:
        session, results = a_session(fake_nvml, lambda gpu: FakeLoad(fake_nvml))
        fake_nvml.fail("nvmlDeviceGetSamples", NOT_SUPPORTED)
        fake_nvml.fail("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED)

        capture(session, results, lambda so_far: None)

        assert "no utilisation sample came" in results.missing["waves of 1 s busy, 0.3 s idle"]
        assert results.stalls

    def test_begins_nothing_more_when_the_time_is_up(self, fake_nvml: FakeNvml) -> None:
        session, results = a_session(fake_nvml, lambda gpu: FakeLoad(fake_nvml))
        fake_nvml.advance(601.0)

        capture(session, results, lambda so_far: None)

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
        assert sys.executable

        with pytest.raises(LoadError, match="has ended"):
            ChildLoad(gpu_uuid=None)

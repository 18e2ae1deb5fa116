"""Specification of the capture: on a board of which all is known, it finds just that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.probe.probe import NvmlProbe, ProbeLimits
from tests.builders.nvml import DriverClock
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.signals import clock_offset_us
from tests.tools.board_capture import capture as capturing
from tests.tools.board_capture import load as loading
from tests.tools.board_capture.__main__ import CaptureError
from tests.tools.board_capture.accuracy import watch_wave
from tests.tools.board_capture.activity import watch_activity
from tests.tools.board_capture.board import Board
from tests.tools.board_capture.capture import EVERYTHING, Capture
from tests.tools.board_capture.load import Load, LoadError
from tests.tools.board_capture.page import board_page
from tests.tools.board_capture.results import Results, Row
from tests.tools.board_capture.rings import BETWEEN_LOOKS_S, watch_rings
from tests.tools.board_capture.stalls import watch_stalls
from tests.unit.tools.fake_load import FakeLoad

S = 1_000_000_000


@pytest.fixture
def board(fake_nvml: FakeNvml) -> Iterator[Board]:
    library, clock = NvmlLibrary(), DriverClock(fake_nvml)
    handle = library.handle_by_index(0)
    assert handle is not None
    yield Board(library, handle, clock, clock.read_clock_ns)
    library.close()


def watched(board: Board, kind: str = "gpu_utilization", seconds: float = 6.0) -> Row:
    return {ring["samples"]: ring for ring in watch_rings(board, seconds, "idle")}[kind]


def waved(fake: FakeNvml, load: Load, busy_s: float, idle_s: float) -> Row:
    clock = DriverClock(fake)
    command = {"do": "wave", "seconds": 16.0, "busy_s": busy_s, "idle_s": idle_s}
    return watch_wave(clock, fake.uuid(0), load, command, clock.read_clock_ns)


class TestTheRings:
    def test_are_found_with_the_cadence_and_depth_they_have(
        self, fake_nvml: FakeNvml, board: Board
    ) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=0.5, window_s=0.2)
        fake_nvml.gpu(0).ring_depth = 40

        ring = watched(board)

        assert ring["depth"] == 40
        assert ring["apart, ms"] == pytest.approx((200, 200, 200))
        assert ring["came"] == pytest.approx(30, abs=1)

    @pytest.mark.parametrize("late_s", [0.0, 0.05, 0.3])
    def test_are_found_with_the_delay_they_have(
        self, fake_nvml: FakeNvml, board: Board, late_s: float
    ) -> None:
        fake_nvml.publish_late(0, by_s=late_s)

        _, *delays_ms = watched(board)["delay, ms"]

        assert all(0 <= ms - 1000 * late_s <= 1000 * BETWEEN_LOOKS_S for ms in delays_ms)

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

        assert watched(board, seconds=1.0)["clock"] in names

    def test_that_slow_down_while_idle_are_found_so(
        self, fake_nvml: FakeNvml, board: Board
    ) -> None:
        fake_nvml.slow_when_idle(0, every_s=1.0)
        load = FakeLoad(fake_nvml)

        idle = watched(board, "power")["apart, ms"]
        load.run("full")
        busy = watched(board, "power")["apart, ms"]

        assert (idle.median, busy.median) == pytest.approx((1000, 20))

    def test_that_the_board_does_not_keep_are_left_out(self, board: Board) -> None:
        names = [ring["samples"] for ring in watch_rings(board, 0.5, "idle")]

        assert names == ["power", "gpu_utilization"]


class TestAWave:
    @pytest.mark.parametrize("window_s", [1 / 6, 0.25])
    def test_is_held_against_what_gpumon_made_of_it(
        self, fake_nvml: FakeNvml, window_s: float
    ) -> None:
        found = waved(fake_nvml, FakeLoad(fake_nvml, window_s=window_s), busy_s=1.3, idle_s=0.7)

        assert 60 < found["busy, truth, %"] < 70  # not of whole rounds
        assert found["busy, gpumon, %"] == pytest.approx(found["busy, truth, %"], abs=0.5)
        assert found["a sample, ms"] == pytest.approx(1000 * window_s, abs=4)
        assert found["error of a sample, %"] < 0.6  # NVML's percents are whole
        assert found["a span, ms"] == pytest.approx(1300)
        assert found["by device events, ms"] == pytest.approx(1299)
        assert found["pauses seen"] == found["pauses, truth"] == 7
        assert found["pause seen, ms"] == pytest.approx(700, abs=20)

    def test_that_the_board_did_not_see_is_far_from_what_gpumon_made_of_it(
        self, fake_nvml: FakeNvml
    ) -> None:
        class Elsewhere(FakeLoad):
            """Computes on another board than the one that is watched."""

            def _wave(self, period_s: float, busy_ratio: float, phase_s: float = 0.0) -> None:
                fake_nvml.wave(0, period_s=0.9, busy_ratio=0.4)

        found = waved(fake_nvml, Elsewhere(fake_nvml), busy_s=0.7, idle_s=0.43)

        assert found["error of a sample, %"] > 20


class TestActivity:
    def test_of_a_small_and_a_full_kernel_differs_where_utilisation_does_not(
        self, fake_nvml: FakeNvml, board: Board
    ) -> None:
        load = FakeLoad(fake_nvml)
        load.run("full")
        full = watch_activity(board, 3.0, "full")
        load.run("small")
        small = watch_activity(board, 3.0, "small")

        assert (full["utilisation, %"], small["utilisation, %"]) == (100, 100)
        assert full["SM active, %"] == pytest.approx(90, abs=1)
        assert small["SM active, %"] == pytest.approx(5, abs=1)
        assert full["limit, W"] == 700.0


class TestStalls:
    def test_show_in_the_steps_of_the_training_beside_it(self, fake_nvml: FakeNvml) -> None:
        clock = DriverClock(fake_nvml)

        rows = watch_stalls(clock, FakeLoad(fake_nvml), 4.0, clock.read_clock_ns)

        none, again, slow, quick = rows
        assert none["steps/s"] == again["steps/s"] == 1_000
        assert quick["steps/s"] < slow["steps/s"] < 1_000
        assert again["of those without, %"] == 100
        assert quick["of those without, %"] == pytest.approx(quick["steps/s"] / 10)
        low, high = map(float, quick["middle half, %"].split(" to "))
        assert low <= quick["of those without, %"] <= high
        assert (none["in NVML, %"], none["turns"]) == (0.0, 9)
        assert quick["in NVML, %"] > 0.0


def results_of(fake: FakeNvml) -> Results:
    probe = NvmlProbe(DriverClock(fake), options=EVERYTHING, limits=ProbeLimits(times=1))
    driver = probe.ask_all()
    probe.close()
    return Results(
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

    clock = DriverClock(fake)
    results = results_of(fake)
    capture = Capture(
        clock=clock,
        read_clock_ns=clock.read_clock_ns,
        pace=0.2,
        until_ns=clock.monotonic_ns() + 600 * S,
        open_load=open_load,
        record=record,
        results=results,
        keep=lambda: keep(results),
    )
    fake.advance(after_s)
    capture.measure()
    return results


class TestACapture:
    @pytest.fixture(autouse=True)
    def few_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(capturing, "_COST_US", 20_000.0)

    def test_measures_every_part_and_keeps_a_page_after_each(self, fake_nvml: FakeNvml) -> None:
        pages: list[str] = []

        results = captured(fake_nvml, keep=lambda so_far: pages.append(board_page(so_far)))

        assert results.missing == {}
        assert len(pages) == 13
        assert "Not measured" in pages[0]
        assert "Not measured" not in pages[-1]
        for told in ("1 s busy, 0.3 s idle", "gpumon at 10 Hz", "small kernels", "a fake load"):
            assert told in pages[-1], told

    def test_tells_what_a_call_costs_as_the_driver_has_it(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.delay("nvmlDeviceGetFanSpeed", 11_000)

        results = captured(fake_nvml)

        assert results.costs
        assert "e+04" not in board_page(results)
        for gpu in results.costs.values():
            calls = {field.field.name: field.calls[0] for field in gpu.fields}
            fan, power = calls["fan"], calls["power"]
            assert fan.median_us is not None
            assert power.median_us is not None
            # How much longer a call takes than it was told to is the machine's affair.
            assert min(fan.durations_us) >= 11_000
            assert fan.median_us > 10 * power.median_us
            assert len(power.durations_us) > len(fan.durations_us)

    def test_without_a_load_measures_the_rest_and_says_why(self, fake_nvml: FakeNvml) -> None:
        recorded: list[float] = []

        results = captured(fake_nvml, refused="torch: it sees no GPU", record=recorded.append)

        page = board_page(results)
        assert "## Does reading slow a training down\n\nNot measured: there is no load" in page
        assert "torch: it sees no GPU" in page
        assert [ring["samples"] for ring in results.rings] == ["power", "gpu_utilization"]
        assert len(recorded) == 1  # of an idle board

    def test_records_a_board_that_works_and_pauses(self, fake_nvml: FakeNvml, board: Board) -> None:
        seen: list[float] = []

        def record(_: float) -> None:
            until_ns = board.clock.monotonic_ns() + 3 * S
            while board.clock.monotonic_ns() < until_ns:
                seen.append(watch_activity(board, 0.1, "wave")["utilisation, %"])

        captured(fake_nvml, record=record)

        assert (min(seen), max(seen)) == (0, 100)

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


class TestTheProcessThatComputes:
    def test_says_why_where_it_cannot(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "torch.py").write_text("raise ImportError('none for this board')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

        with pytest.raises(LoadError, match="none for this board"):
            Load(gpu_uuid="GPU-0")

    def test_that_ends_is_told_of(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        silent = tmp_path / "silent.py"
        silent.write_text("raise SystemExit(0)")
        monkeypatch.setattr(loading, "_PROGRAM", silent)

        with pytest.raises(LoadError, match="has ended"):
            Load(gpu_uuid=None)

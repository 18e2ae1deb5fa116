"""Specification of the worlds whose truth is known, and of the logs that are kept of them."""

from __future__ import annotations

import re
import zlib
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.phase import TrainingMode, TrainingPhase
from tests.truth.worlds import (
    DEVELOPMENT_SEEDS,
    EVALUATION_SEEDS,
    KINDS,
    GpuTruth,
    World,
    as_csv,
    memory_used_mib,
    seen,
    seen_all,
    world,
    worlds,
)
from tests.truth.worlds.__main__ import main
from tests.truth.worlds.seeing import Driver
from tests.truth.worlds.spans import (
    clipped,
    gaps,
    intersection,
    iou,
    lengths_ms,
    spans_of,
    total_ms,
)

LATE = [kind.name for kind in KINDS.values() if kind.is_late]
NEVER_LATE = [kind.name for kind in KINDS.values() if not kind.is_late]
UNTAGGED = ["inference_server", "notebook", "unused"]
TRAINED = [name for name in KINDS if name not in UNTAGGED]


@cache
def half_an_hour(kind: str, seed: int = 1) -> World:
    return world(kind, seed, hours=0.5)


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def crc(made: World) -> int:
    """Of all that happened, to the millisecond."""
    arrays = [
        column
        for gpu in made.gpus
        for column in (gpu.busy, gpu.starved, gpu.jobs, gpu.held, *gpu.marks)
    ]
    return zlib.crc32(b"".join(array.astype("<i8").tobytes() for array in arrays))


def gpu_busy(*spans: tuple[int, int]) -> GpuTruth:
    return GpuTruth(busy=spans_of(spans), starved=spans_of([]), jobs=spans_of(spans))


@pytest.mark.parametrize("kind", KINDS)
class TestEachKind:
    def test_makes_spans_that_are_sorted_disjoint_and_within_the_world(self, kind: str) -> None:
        made = half_an_hour(kind)

        for gpu in made.gpus:
            for spans in (gpu.busy, gpu.starved, gpu.jobs, gpu.held):
                assert (np.diff(spans.ravel()) > 0).all()
                assert iou(spans, clipped(spans, 0, made.duration_ms)) == 1.0

    def test_never_starves_a_gpu_that_works_or_that_is_in_no_job(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            assert total_ms(intersection(gpu.busy, gpu.starved)) == 0
            assert total_ms(intersection(gpu.starved, gpu.jobs)) == gpu.starved_ms
            assert (
                gpu.starved_ms
                <= gpu.lost_ms
                == gpu.in_use_ms - total_ms(intersection(gpu.busy, gpu.jobs))
            )

    def test_has_jobs_that_begin_and_end_with_work(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            assert np.isin(gpu.jobs[:, 0], gpu.busy[:, 0]).all()
            assert np.isin(gpu.jobs[:, 1], gpu.busy[:, 1]).all()

    def test_is_the_same_on_every_machine(self, kind: str) -> None:
        assert crc(half_an_hour(kind)) == GOLDEN[kind]

    def test_makes_another_world_of_another_seed(self, kind: str) -> None:
        assert crc(half_an_hour(kind, 2)) != crc(half_an_hour(kind, 1))

    def test_says_what_it_models_and_within_which_ranges(self, kind: str) -> None:
        models, doc = KINDS[kind].models, KINDS[kind].make.__doc__ or ""

        assert models.endswith(".")
        assert len(doc.split("\n\n")) == 2


@pytest.mark.parametrize("kind", TRAINED)
class TestWhatATaggerWouldHaveSaid:
    def test_comes_in_order(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            assert gpu.phases[0].phase is TrainingPhase.START_UP
            assert (np.diff(gpu.marks.at_ms) >= 0).all()
            assert len(gpu.phases) == gpu.marks.at_ms.size

    def test_calls_all_that_is_starved_a_wait_for_input(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            waits = gpu.in_phase(TrainingPhase.INPUT_WAIT)

            assert total_ms(intersection(gpu.starved, waits)) == gpu.starved_ms

    def test_calls_no_checkpoint_and_no_validation_starved(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            for other in (
                gpu.in_phase(TrainingPhase.CHECKPOINT),
                gpu.in_phase(TrainingPhase.DEVICE_SYNC),
                gpu.in_phase(TrainingPhase.BETWEEN_EPOCHS),
                gpu.in_phase(TrainingPhase.VALIDATION, TrainingMode.VALIDATION),
            ):
                assert total_ms(intersection(gpu.starved, other)) == 0


class TestTheKinds:
    def test_are_as_many_with_a_late_loader_as_without(self) -> None:
        assert len(LATE) >= 8
        assert len(NEVER_LATE) >= 8

    @pytest.mark.parametrize("kind", NEVER_LATE)
    def test_without_a_late_loader_are_not_starved_whatever_they_lose(self, kind: str) -> None:
        for seed in range(3):
            assert all(gpu.starved_ratio < 0.02 for gpu in half_an_hour(kind, seed).gpus)

    @pytest.mark.parametrize("kind", LATE)
    def test_with_a_late_loader_are_starved_at_least_now_and_then(self, kind: str) -> None:
        assert any(half_an_hour(kind, seed).is_starved for seed in range(8))

    @pytest.mark.parametrize("kind", [kind for kind in LATE if KINDS[kind].is_visible])
    def test_are_visible_where_they_lose_whole_seconds(self, kind: str) -> None:
        pauses_ms = lengths_ms(
            np.concatenate([half_an_hour(kind, seed).gpus[0].starved for seed in range(4)])
        )

        assert pauses_ms[pauses_ms >= 1_000].sum() >= 0.8 * pauses_ms.sum()

    @pytest.mark.parametrize("kind", ["short_stalls", "host_bound", "loader_in_training"])
    def test_are_flat_where_no_pause_lasts_a_second(self, kind: str) -> None:
        lost_ms = lengths_ms(half_an_hour(kind).gpus[0].lost)

        assert lost_ms[lost_ms >= 1_000].sum() < 0.01 * lost_ms.sum()

    @pytest.mark.parametrize("kind", ["checkpoints", "validation", "rounds", "notebook"])
    def test_that_confuse_lose_time_too(self, kind: str) -> None:
        lost = [half_an_hour(kind, seed).gpus[0] for seed in range(4)]

        assert any(gpu.lost_ms >= 0.05 * gpu.in_use_ms for gpu in lost)

    @pytest.mark.parametrize("kind", UNTAGGED)
    def test_without_a_training_have_no_tags_and_nothing_starved(self, kind: str) -> None:
        (gpu,) = half_an_hour(kind).gpus

        assert gpu.phases == ()
        assert gpu.starved_ms == 0

    def test_of_a_shared_loader_pause_both_gpus_together(self) -> None:
        first, second = half_an_hour("shared_loader").gpus

        assert iou(first.starved, second.starved) > 0.99

    def test_of_two_strangers_have_one_starved_gpu_beside_one_that_is_not(self) -> None:
        assert [gpu.is_starved for gpu in half_an_hour("two_strangers").gpus] == [True, False]

    def test_of_many_gpus_pause_all_together_and_starve_none(self) -> None:
        first, *others = (
            spans_of([span for span in gpu.lost.tolist() if span[1] - span[0] > 1_000])
            for gpu in half_an_hour("many_gpus").gpus
        )

        assert len(others) >= 3
        assert total_ms(first) > 0
        assert min(iou(first, other) for other in others) > 0.95

    def test_of_unequal_gpus_cost_the_faster_one_its_time(self) -> None:
        faster, slower = half_an_hour("unequal_gpus").gpus

        assert faster.lost_ms > slower.lost_ms + 0.05 * faster.in_use_ms

    def test_of_a_cold_cache_are_starved_at_first(self) -> None:
        for seed in range(4):
            made = world("cold_cache", seed)
            gpu, half_ms = made.gpus[0], made.duration_ms // 2

            early = total_ms(clipped(gpu.starved, 0, half_ms))

            assert early >= 0.6 * gpu.starved_ms > 0

    def test_of_several_jobs_have_breaks_between_them_that_nobody_lost(self) -> None:
        (gpu,) = world("several_jobs", 1).gpus
        breaks = gaps(gpu.jobs, int(gpu.jobs[0, 0]), int(gpu.jobs[-1, 1]))

        assert breaks.shape[0] == gpu.jobs.shape[0] - 1 >= 1
        assert total_ms(intersection(breaks, gpu.lost)) == 0

    def test_are_made_of_any_number_of_seeds(self) -> None:
        made = worlds(["rounds", "unused"], range(3), hours=0.1)

        assert [(one.kind, one.seed) for one in made] == [
            (kind, seed) for kind in ("rounds", "unused") for seed in range(3)
        ]

    def test_are_tuned_on_other_seeds_than_they_are_judged_by(self) -> None:
        assert not {*DEVELOPMENT_SEEDS} & {*EVALUATION_SEEDS}

    @settings(max_examples=15, deadline=None)
    @given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**31), st.floats(0.02, 0.2))
    def test_hold_for_any_seed_and_any_length(self, kind: str, seed: int, hours: float) -> None:
        made = world(kind, seed, hours)

        for gpu in made.gpus:
            assert total_ms(intersection(gpu.busy, gpu.starved)) == 0
            assert 0 <= gpu.starved_ms <= gpu.lost_ms <= gpu.in_use_ms <= made.duration_ms


class TestADriver:
    DRIVER = Driver(window_ms=500.0, phase_ms=100.0, delay_ms=50.0)

    def seen_at(self, *at_ms: float, busy: tuple[int, int]) -> list[int]:
        return [*map(int, self.DRIVER.percents(gpu_busy(busy), np.array(at_ms)))]

    def test_tells_the_share_of_the_newest_window_that_has_ended(self) -> None:
        # Windows are 600 to 1,100 ms, 1,100 to 1,600 ms, ...
        assert self.seen_at(1_149, 1_150, 1_650, 2_150, busy=(850, 1_225)) == [0, 50, 25, 0]

    def test_knows_nothing_of_the_time_before_the_world(self) -> None:
        assert self.seen_at(0, 149, 150, busy=(0, 90)) == [0, 0, 18]

    @pytest.mark.parametrize("kind", ["worker_waves", "short_stalls", "inference_server"])
    def test_loses_no_busy_time(self, kind: str) -> None:
        made = half_an_hour(kind)

        for seed in range(3):
            (log,) = seen_all(made, 0.1, chance(seed))
            told = float(log.percents.mean()) / 100.0

            assert told == pytest.approx(made.gpus[0].busy_ms / made.duration_ms, abs=0.01)

    def test_has_windows_of_a_sixth_of_a_second_to_a_second(self) -> None:
        lengths_ms = [seen(gpu_busy((0, 9)), 1.0, chance(seed)).window_ms for seed in range(99)]

        assert 1_000 / 6 <= min(lengths_ms) < 250
        assert 900 < max(lengths_ms) <= 1_000


class TestALogger:
    @pytest.mark.parametrize("period_s", [0.1, 1, 5, 15, 60])
    def test_writes_a_row_about_every_period_until_the_world_ends(self, period_s: float) -> None:
        made = half_an_hour("worker_waves")
        (log,) = seen_all(made, period_s, chance())
        apart_s = np.diff(log.stamps_ns) / 1e9

        assert log.stamps_ns.dtype == np.int64
        assert log.percents.dtype == np.uint8
        assert log.stamps_ns[0] <= period_s * 1e9
        assert made.duration_ms * 1e6 - 5 * period_s * 1e9 < log.stamps_ns[-1]
        assert log.stamps_ns[-1] < made.duration_ms * 1e6
        assert period_s <= np.median(apart_s) <= 1.04 * period_s
        assert apart_s.min() >= 0.999 * period_s

    def test_is_late_at_times(self) -> None:
        (log,) = seen_all(half_an_hour("worker_waves"), 0.1, chance())
        is_late = np.diff(log.stamps_ns) > 0.125e9

        assert 0 < is_late.mean() < 0.01

    def test_reads_all_gpus_of_a_world_some_milliseconds_apart(self) -> None:
        first, second = seen_all(half_an_hour("shared_loader"), 1.0, chance())
        apart_ns = second.stamps_ns - first.stamps_ns

        assert first.window_ms == second.window_ms
        assert apart_ns.min() > 0
        assert apart_ns.max() < 5e6

    def test_sees_the_same_with_the_same_chance(self) -> None:
        made = half_an_hour("worker_waves")
        one, other = (seen_all(made, 1.0, chance(7))[0] for _ in range(2))

        assert one.stamps_ns.tolist() == other.stamps_ns.tolist()
        assert one.percents.tolist() == other.percents.tolist()


class TestACsv:
    def test_looks_as_nvidia_smi_writes_it(self) -> None:
        made = half_an_hour("shared_loader")
        head, first, second, *_ = as_csv(made, 60.0, chance()).splitlines()

        assert head == "timestamp, index, utilization.gpu [%], memory.used [MiB]"
        assert re.fullmatch(r"2026/03/02 09:0\d:\d\d\.\d{3}, 0, \d+ %, \d+ MiB", first)
        assert re.fullmatch(r"2026/03/02 09:0\d:\d\d\.\d{3}, 1, \d+ %, \d+ MiB", second)

    def test_has_the_rows_of_the_log(self) -> None:
        made = half_an_hour("rounds")
        (log,) = seen_all(made, 5.0, chance(3))
        rows = [row.split(", ") for row in as_csv(made, 5.0, chance(3)).splitlines()[1:]]

        assert [int(row[2].removesuffix(" %")) for row in rows] == log.percents.tolist()

    def test_holds_memory_while_a_process_lives(self) -> None:
        (gpu,) = half_an_hour("rounds").gpus
        began_ms = int(gpu.held[0, 0])

        before, after = memory_used_mib(gpu, np.array([began_ms - 1, began_ms])).tolist()

        assert after - before == gpu.memory_mib > 0


class TestTheCommand:
    def test_lists_the_kinds(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([]) == 0

        listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
        assert listed == [*KINDS]

    def test_shows_a_world_and_its_log(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["shared_loader", "1", "--hours", "0.5", "--period", "1"]) == 0

        out = capsys.readouterr().out
        first = half_an_hour("shared_loader").gpus[0]
        assert f"starved {first.starved_ms / 1000:.1f} s" in out
        assert [out.count(f"  {lane} ") for lane in ("busy", "starved", "seen")] == [2, 2, 2]

    def test_prints_a_log_for_gpumon(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["rounds", "1", "--hours", "0.5", "--csv"]) == 0

        assert capsys.readouterr().out == as_csv(half_an_hour("rounds"), 1.0, chance(1))

    @pytest.mark.parametrize("words", [["no_such_kind"], ["rounds", "1", "--hours", "0"]])
    def test_refuses_what_there_is_not(self, words: list[str]) -> None:
        with pytest.raises(SystemExit) as refused:
            main(words)

        assert refused.value.code == 2


GOLDEN = {
    "worker_waves": 2_519_865_444,
    "slow_storage": 1_602_600_503,
    "cold_cache": 1_102_450_931,
    "epoch_restart": 1_598_595_226,
    "augmentation": 3_925_239_618,
    "shard_fetch": 2_955_308_932,
    "shared_loader": 2_255_269_704,
    "two_strangers": 2_440_534_156,
    "noisy_neighbour": 598_762_746,
    "starved_with_checkpoints": 3_273_872_872,
    "several_jobs": 4_080_468_356,
    "short_stalls": 3_139_538_492,
    "loader_in_training": 2_116_971_714,
    "healthy_prefetch": 585_396_361,
    "checkpoints": 3_601_798_557,
    "many_gpus": 2_842_732_323,
    "validation": 1_088_195_971,
    "host_bound": 894_649_800,
    "unequal_gpus": 293_965_253,
    "throttled": 1_062_590_554,
    "rounds": 1_044_924_962,
    "sweep": 2_818_292_040,
    "inference_server": 1_897_439_566,
    "notebook": 4_239_697_147,
    "unused": 2_998_525_650,
}
"""What each kind's half hour of seed 1 has always been."""

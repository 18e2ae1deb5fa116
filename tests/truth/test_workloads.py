"""Specification of the workloads whose truth is known, and of the logs that are kept of them."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.phase import TrainingMode, TrainingPhase
from tests.truth.workloads import DEVELOPMENT_SEEDS, EVALUATION_SEEDS, KINDS, Workload, workload
from tests.truth.workloads.spans import (
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
UNTAGGED = ["inference_server", "notebook", "unused", "requests_by_hand", "desktop"]
TRAINED = [name for name in KINDS if name not in UNTAGGED]


@cache
def half_an_hour(kind: str, seed: int = 1) -> Workload:
    return workload(kind, seed, hours=0.5)


def crc(made: Workload) -> int:
    """Of all that happened, to the millisecond."""
    arrays = [
        column
        for gpu in made.gpus
        for column in (gpu.busy, gpu.starved, gpu.jobs, gpu.held, *gpu.marks)
    ]
    return zlib.crc32(b"".join(array.astype("<i8").tobytes() for array in arrays))


@pytest.mark.parametrize("kind", KINDS)
class TestEachKind:
    def test_makes_spans_that_are_sorted_disjoint_and_within_the_workload(self, kind: str) -> None:
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

    def test_differs_by_seed(self, kind: str) -> None:
        assert crc(half_an_hour(kind, 2)) != crc(half_an_hour(kind, 1))


@pytest.mark.parametrize("kind", TRAINED)
class TestWhatATaggerWouldHavePrinted:
    def test_comes_in_order(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            assert gpu.phases[0].phase is TrainingPhase.START_UP
            assert (np.diff(gpu.marks.at_ms) >= 0).all()
            assert len(gpu.phases) == gpu.marks.at_ms.size

    def test_calls_all_that_is_starved_a_wait_for_input(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            reported_ms = sum(
                total_ms(intersection(gpu.starved, gpu.in_phase(TrainingPhase.INPUT_WAIT, mode)))
                for mode in (TrainingMode.TRAIN, TrainingMode.VALIDATION)
            )

            assert reported_ms == gpu.starved_ms

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
    def test_without_a_run_have_no_tags_and_nothing_starved(self, kind: str) -> None:
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
            made = workload("cold_cache", seed)
            gpu, half_ms = made.gpus[0], made.duration_ms // 2

            early = total_ms(clipped(gpu.starved, 0, half_ms))

            assert early >= 0.6 * gpu.starved_ms > 0

    def test_of_several_jobs_have_breaks_between_them_that_no_one_lost(self) -> None:
        (gpu,) = workload("several_jobs", 1).gpus
        breaks = gaps(gpu.jobs, int(gpu.jobs[0, 0]), int(gpu.jobs[-1, 1]))

        assert breaks.shape[0] == gpu.jobs.shape[0] - 1 >= 1
        assert total_ms(intersection(breaks, gpu.lost)) == 0

    def test_are_tuned_on_other_seeds_than_they_are_diagnosed_by(self) -> None:
        assert not {*DEVELOPMENT_SEEDS} & {*EVALUATION_SEEDS}

    @settings(max_examples=15, deadline=None)
    @given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**31), st.floats(0.02, 0.2))
    def test_hold_for_any_seed_and_any_length(self, kind: str, seed: int, hours: float) -> None:
        made = workload(kind, seed, hours)

        for gpu in made.gpus:
            assert total_ms(intersection(gpu.busy, gpu.starved)) == 0
            assert 0 <= gpu.starved_ms <= gpu.lost_ms <= gpu.in_use_ms <= made.duration_ms


GOLDEN = {
    "worker_waves": 1_428_537_995,
    "slow_storage": 2_910_946_685,
    "cold_cache": 2_019_175_799,
    "epoch_restart": 2_599_668_605,
    "augmentation": 3_789_078_185,
    "shard_fetch": 4_058_090_747,
    "shared_loader": 3_570_608_430,
    "two_strangers": 1_303_886_561,
    "noisy_neighbour": 901_536_571,
    "starved_with_checkpoints": 2_610_465_793,
    "several_jobs": 2_149_481_812,
    "late_validation": 1_488_428_350,
    "late_on_many_gpus": 1_781_728_597,
    "late_rank": 1_099_924_957,
    "short_stalls": 1_114_495_141,
    "loader_in_training": 3_898_470_662,
    "healthy_prefetch": 56_303_126,
    "checkpoints": 3_151_261_000,
    "many_gpus": 3_026_237_326,
    "validation": 881_536_882,
    "host_bound": 2_091_790_096,
    "unequal_gpus": 2_676_837_711,
    "throttled": 2_506_610_543,
    "rounds": 3_183_150_612,
    "sweep": 1_732_566_164,
    "inference_server": 1_897_439_566,
    "notebook": 4_239_697_147,
    "unused": 2_998_525_650,
    "asynchronous_checkpoints": 1_064_998_135,
    "frequent_checkpoints": 530_467_131,
    "scores_on_the_host": 4_028_051_574,
    "federated_client": 2_784_104_172,
    "blips": 4_269_324_003,
    "roll_outs": 24_853_763,
    "generation": 1_202_824_285,
    "lives_on": 867_375_167,
    "many_gpus_that_spin": 428_776_301,
    "requests_by_hand": 1_542_137_769,
    "desktop": 1_115_700_041,
}
"""What each kind's half hour of seed 1 has always been."""

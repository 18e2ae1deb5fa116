"""Specification of the second generator: its truth is consistent and its kinds differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pytest

from gpumon.core.verdict import LikelyCause
from tests.truth.renewal import KINDS, machine
from tests.truth.workloads.spans import difference, intersection, lengths_ms, total_ms
from tests.truth.workloads.truth import GpuTruth, Workload

HOURS = 0.5
Workloads: TypeAlias = Mapping[str, Sequence[Workload]]
SEEDS = range(12)
PAUSE_MS = 500
LATE = [name for name, kind in KINDS.items() if kind.is_late]
OTHERS = [name for name, kind in KINDS.items() if not kind.is_late]
HEALTHY = ["steady_training", "well_fed_training", "offline_inference"]


@pytest.fixture(scope="module")
def workloads() -> Workloads:
    return {name: [machine(name, seed, HOURS) for seed in SEEDS] for name in KINDS}


def lost_ratio(gpu: GpuTruth) -> float:
    return gpu.lost_ms / gpu.in_use_ms if gpu.in_use_ms else 0.0


class TestATruth:
    @pytest.mark.parametrize("name", KINDS)
    def test_is_consistent(self, workloads: Workloads, name: str) -> None:
        for workload in workloads[name]:
            assert (workload.kind, workload.duration_ms) == (name, 1_800_000)
            for gpu in workload.gpus:
                for spans in (gpu.busy, gpu.starved, gpu.jobs, gpu.held, gpu.spins):
                    assert (np.diff(spans.ravel()) > 0).all()
                    assert not spans.size or (spans.min() >= 0 and spans.max() <= 1_800_000)
                assert total_ms(intersection(gpu.starved, gpu.busy)) == 0
                assert total_ms(difference(gpu.starved, gpu.jobs)) == 0
                assert total_ms(difference(gpu.busy, gpu.jobs)) == 0
                assert total_ms(difference(gpu.jobs, gpu.held)) == 0
                assert total_ms(difference(gpu.spins, gpu.busy)) == 0

    @pytest.mark.parametrize("name", KINDS)
    def test_follows_from_its_seed(self, workloads: Workloads, name: str) -> None:
        first, other = workloads[name][:2]
        again = machine(name, first.seed, HOURS)

        for one, two in zip(first.gpus, again.gpus, strict=True):
            assert np.array_equal(one.busy, two.busy)
            assert np.array_equal(one.starved, two.starved)
        assert not np.array_equal(first.gpus[0].busy, other.gpus[0].busy)

    def test_has_several_jobs_on_some_longer_machines(self) -> None:
        jobs = [machine("no_workers", seed, 2.0).gpus[0].jobs.shape[0] for seed in range(20)]

        assert min(jobs) == 1
        assert max(jobs) > 1

    def test_has_no_machine_of_an_unknown_kind(self) -> None:
        with pytest.raises(KeyError):
            machine("nothing", 1, HOURS)


class TestAKind:
    def test_is_one_of_many(self) -> None:
        assert len(LATE) >= 10
        assert len(OTHERS) >= 10
        assert {kind.lost_to for kind in KINDS.values()} == {None, *LikelyCause} - {
            LikelyCause.OPEN
        }

    @pytest.mark.parametrize("name", LATE)
    def test_is_starved_where_input_is_late(self, workloads: Workloads, name: str) -> None:
        assert np.mean([workload.is_starved for workload in workloads[name]]) >= 0.7

    @pytest.mark.parametrize("name", LATE)
    def test_is_starved_in_pauses_that_show(self, workloads: Workloads, name: str) -> None:
        starved = [lengths_ms(gpu.starved) for workload in workloads[name] for gpu in workload.gpus]
        lengths = np.concatenate(starved)

        assert lengths[lengths >= PAUSE_MS].sum() >= 0.75 * lengths.sum()

    @pytest.mark.parametrize("name", OTHERS)
    def test_is_hardly_starved_otherwise(self, workloads: Workloads, name: str) -> None:
        assert max(gpu.starved_ratio for one in workloads[name] for gpu in one.gpus) <= 0.02

    @pytest.mark.parametrize("name", HEALTHY)
    def test_loses_little_where_it_is_healthy(self, workloads: Workloads, name: str) -> None:
        ratios = [lost_ratio(gpu) for workload in workloads[name] for gpu in workload.gpus]

        assert np.median(ratios) <= 0.03

    def test_covers_a_wide_range_of_idle_shares(self, workloads: Workloads) -> None:
        for names in (LATE, OTHERS):
            ratios = [
                lost_ratio(workload.gpus[0]) for name in names for workload in workloads[name]
            ]
            low, high = np.quantile(ratios, (0.05, 0.95))

            assert low <= 0.1
            assert high >= 0.7

    @pytest.mark.parametrize("name", [name for name in LATE if name != "ranks_with_a_loader_each"])
    def test_has_machines_of_unlike_scale(self, workloads: Workloads, name: str) -> None:
        pauses = [lengths_ms(workload.gpus[0].lost) for workload in workloads[name]]
        visible = [lengths[lengths >= PAUSE_MS] for lengths in pauses]
        typical = [np.median(lengths) for lengths in visible if lengths.size]

        assert max(typical) >= 3 * min(typical)

    def test_has_no_more_spans_than_is_quick_to_make(self, workloads: Workloads) -> None:
        most = max(gpu.busy.shape[0] for all_ in workloads.values() for w in all_ for gpu in w.gpus)

        assert most <= 40_000

"""The synthetic machines whose pauses come from programs that contend for resources."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from gpumon.core.verdict import LikelyCause
from tests.truth.programs import KINDS, machine
from tests.truth.programs.engine import Barrier, Gpu, Loader, Machine, Making, Process, Program
from tests.truth.workloads.spans import clipped, intersection, iou, lengths_ms, total_ms
from tests.truth.workloads.truth import Workload

LATE = [kind for kind, lost_to in KINDS.items() if lost_to is LikelyCause.LATE_INPUT]
OTHERS = [kind for kind in KINDS if kind not in LATE]
SEEDS = range(10)


@cache
def half_an_hour(kind: str, seed: int = 1) -> Workload:
    return machine(kind, seed, 0.5)


@pytest.mark.parametrize("kind", KINDS)
class TestEachKind:
    def test_makes_sorted_disjoint_spans_within_the_machines_time(self, kind: str) -> None:
        made = half_an_hour(kind)

        assert made.gpus
        for gpu in made.gpus:
            for spans in (gpu.busy, gpu.starved, gpu.jobs, gpu.held):
                assert (np.diff(spans.ravel()) > 0).all()
                assert iou(spans, clipped(spans, 0, made.duration_ms)) == 1.0

    def test_starves_only_idle_gpus_within_jobs(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            assert total_ms(intersection(gpu.busy, gpu.starved)) == 0
            assert total_ms(intersection(gpu.starved, gpu.lost)) == gpu.starved_ms

    def test_has_jobs_that_begin_and_end_with_work_of_a_process(self, kind: str) -> None:
        for gpu in half_an_hour(kind).gpus:
            assert gpu.jobs.size
            assert np.isin(gpu.jobs[:, 0], gpu.busy[:, 0]).all()
            assert np.isin(gpu.jobs[:, 1], gpu.busy[:, 1]).all()
            assert total_ms(intersection(gpu.jobs, gpu.held)) == gpu.in_use_ms
            assert gpu.memory_mib > 0

    def test_depends_only_on_its_seed(self, kind: str) -> None:
        once, again = half_an_hour(kind), machine(kind, 1, 0.5)

        for one, other in zip(once.gpus, again.gpus, strict=True):
            assert np.array_equal(one.busy, other.busy)
            assert np.array_equal(one.starved, other.starved)
        assert not np.array_equal(once.gpus[0].busy, half_an_hour(kind, 2).gpus[0].busy)

    def test_starts_like_a_shorter_one(self, kind: str) -> None:
        longer, shorter = half_an_hour(kind), machine(kind, 1, 0.2)

        for one, other in zip(longer.gpus, shorter.gpus, strict=True):
            assert np.array_equal(clipped(one.busy, 0, shorter.duration_ms), other.busy)


class TestStarvation:
    @pytest.mark.parametrize("kind", LATE)
    def test_exists_in_most_machines_with_late_input(self, kind: str) -> None:
        assert sum(half_an_hour(kind, seed).is_starved for seed in SEEDS) >= 7

    @pytest.mark.parametrize("kind", OTHERS)
    def test_is_small_in_all_others(self, kind: str) -> None:
        for seed in SEEDS:
            assert all(gpu.starved_ratio < 0.02 for gpu in half_an_hour(kind, seed).gpus)

    def test_comes_in_pauses_long_enough_for_a_log(self) -> None:
        longest = [
            max(lengths_ms(gpu.starved).max(initial=0) for gpu in half_an_hour(kind, seed).gpus)
            for kind in LATE
            for seed in SEEDS
        ]
        assert np.mean(np.asarray(longest) >= 500) >= 0.8


def test_most_other_machines_have_pauses_too() -> None:
    """So not every pause is due to the loader."""
    lossy = [
        gpu.lost_ms >= 0.05 * gpu.in_use_ms
        for kind in OTHERS
        if KINDS[kind] is not None
        for seed in SEEDS
        for gpu in half_an_hour(kind, seed).gpus
    ]
    assert np.mean(lossy) >= 0.8


def test_a_fixed_program_gives_the_spans_computed_by_hand() -> None:
    """Two workers need 1 s for a batch, a step takes 0.2 s: two steps, then 0.6 s of waiting."""
    m = Machine("by_hand", 0, 5 / 3_600)
    gpu = Gpu(m)

    def make() -> Making:
        yield from m.cpu.use(1_000)
        return 1

    def train() -> Program:
        process, loader = Process(m, gpu), Loader(m, 2, make)
        while True:
            yield from process.ask(loader.get())
            yield from process.compute(200)

    m.start(train())
    (truth,) = m.run().gpus

    assert truth.busy.tolist() == [[1_000, 1_400], [2_000, 2_400], [3_000, 3_400], [4_000, 4_400]]
    assert truth.starved.tolist() == [[1_400, 2_000], [2_400, 3_000], [3_400, 4_000]]
    assert truth.jobs.tolist() == [[1_000, 4_400]]
    assert truth.held.tolist() == [[0, 5_000]]


def test_a_disk_is_shared_equally_and_peers_wait_for_the_last() -> None:
    m = Machine("by_hand", 0, 1.0)
    m.disk.rate = 2.0
    peers, done = Barrier(m, 2), []

    def write(mb: float) -> Program:
        yield from m.disk.use(mb)
        done.append((mb, m.now_ms))
        yield from peers.wait()
        done.append((mb, m.now_ms))

    m.start(write(100))
    m.start(write(300))
    m.run()

    assert sorted(done) == [(100, 100), (100, 200), (300, 200), (300, 200)]

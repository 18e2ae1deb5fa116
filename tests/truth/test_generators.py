"""The synthetic machines that accuracy is measured on: consistent, repeatable, and as labelled."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from tests.truth import programs, renewal, workloads
from tests.truth.input_model.cases import FAMILIES
from tests.truth.programs.engine import Barrier, Gpu, Loader, Machine, Making, Process, Program
from tests.truth.workloads import UNTAGGED, Workload
from tests.truth.workloads.spans import clipped, difference, intersection, iou, lengths_ms, total_ms

LATE = {
    *(("workloads", name) for name, kind in workloads.KINDS.items() if kind.is_late),
    *(("renewal", name) for name in renewal.LATE),
    *(("programs", name) for name in programs.LATE),
}
ALL = [(name, kind) for name, family in FAMILIES.items() for kind in family.kinds]


@cache
def half_an_hour(family: str, kind: str, seed: int = 1) -> Workload:
    return FAMILIES[family].machine(kind, seed, 0.5)


def crc(made: Workload) -> int:
    """Of all that happened, to the millisecond."""
    arrays = [
        column
        for gpu in made.gpus
        for column in (gpu.busy, gpu.starved, gpu.jobs, gpu.held, *gpu.marks)
    ]
    return zlib.crc32(b"".join(array.astype("<i8").tobytes() for array in arrays))


@pytest.mark.parametrize(("family", "kind"), ALL)
class TestEachKind:
    def test_is_consistent(self, family: str, kind: str) -> None:
        made = half_an_hour(family, kind)

        for gpu in made.gpus:
            for spans in (gpu.busy, gpu.starved, gpu.jobs, gpu.held, gpu.spins):
                assert (np.diff(spans.ravel()) > 0).all()
                assert iou(spans, clipped(spans, 0, made.duration_ms)) == 1.0
            assert total_ms(intersection(gpu.busy, gpu.starved)) == 0
            assert total_ms(difference(gpu.starved, gpu.jobs)) == 0
            assert total_ms(difference(gpu.jobs, gpu.held)) == 0
            assert total_ms(difference(gpu.spins, gpu.busy)) == 0
            assert np.isin(gpu.jobs[:, 0], [0, *gpu.busy[:, 0]]).all()
            assert np.isin(gpu.jobs[:, 1], [made.duration_ms, *gpu.busy[:, 1]]).all()

    def test_is_repeatable_by_its_seed(self, family: str, kind: str) -> None:
        made = half_an_hour(family, kind)

        assert crc(FAMILIES[family].machine(kind, 1, 0.5)) == crc(made)
        assert crc(half_an_hour(family, kind, 2)) != crc(made)

    def test_is_starved_only_if_its_input_is_late(self, family: str, kind: str) -> None:
        machines = [half_an_hour(family, kind, seed) for seed in range(5)]

        if (family, kind) in LATE:
            assert any(machine.is_starved for machine in machines)
        else:
            assert all(gpu.starved_ratio <= 0.02 for one in machines for gpu in one.gpus)


def test_workloads_are_the_same_on_every_machine_and_release() -> None:
    """The published figures rest on it."""
    crcs = sorted((kind, crc(half_an_hour("workloads", kind))) for kind in workloads.KINDS)

    assert zlib.crc32(repr(crcs).encode()) == 1_601_094_289


@pytest.mark.parametrize("family", FAMILIES)
def test_most_machines_lose_time_in_visible_pauses(family: str) -> None:
    """So not every pause is due to the loader, and a log can show it."""
    longest = {True: [0], False: [0]}
    for kind in FAMILIES[family].kinds:
        pauses = lengths_ms(half_an_hour(family, kind).gpus[0].lost)
        longest[(family, kind) in LATE].append(int(pauses.max(initial=0)))

    assert np.median(longest[True]) >= 1_000
    assert np.median(longest[False]) >= 1_000


@pytest.mark.parametrize("kind", [kind for kind in workloads.KINDS if kind not in UNTAGGED])
def test_tags_call_all_starved_time_a_wait_for_input(kind: str) -> None:
    for gpu in half_an_hour("workloads", kind).gpus:
        assert gpu.phases[0].phase is TrainingPhase.START_UP
        assert (np.diff(gpu.marks.at_ms) >= 0).all()
        modes = (TrainingMode.TRAIN, TrainingMode.VALIDATION)
        waits = [gpu.in_phase(TrainingPhase.INPUT_WAIT, mode) for mode in modes]
        tagged_ms = sum(total_ms(intersection(gpu.starved, spans)) for spans in waits)
        assert tagged_ms == gpu.starved_ms


def test_a_program_gives_the_spans_computed_by_hand() -> None:
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


def test_programs_share_a_disk_equally_and_peers_wait_for_the_last() -> None:
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

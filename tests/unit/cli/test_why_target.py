"""Which process and which GPU `gpumon why` watches, by what the driver lists."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any, cast

import pytest

from gpumon.cli.why_target import TargetFinder
from gpumon.core.sample import BusySample, Device, Frame, GpuSample, ProcessSample
from gpumon.errors import GpumonError, SourceUnavailableError, UsageError
from gpumon.pipeline.stack_watch import Target
from tests.builders.time import HandClock, s
from tests.processes import ending

HERE = os.getpid()
GONE = 4_194_300
MIG = Device(uuid="MIG-1", index=0, mig_index=1, parent_uuid="GPU-0")


@pytest.fixture
def child() -> Iterator[int]:
    """A child of this process."""
    with ending(subprocess.Popen(["sleep", "60"])) as process:
        yield process.pid


def gpu(
    index: int = 0, *processes: tuple[int, int], busy: float | None = None, **more: Any
) -> GpuSample:
    """A GPU with processes, each with its memory."""
    device = more.pop("device", Device(uuid=f"GPU-{index}", index=index))
    windows = () if busy is None else (BusySample(0, s(1), busy),)
    listed = tuple(ProcessSample(pid, memory, uid=0) for pid, memory in processes)
    return GpuSample(device=device, processes=listed, busy=windows, **more)


class Driver:
    """Answers at once, or never."""

    fatal = None

    def __init__(self, *gpus: GpuSample, answers: bool = True) -> None:
        self.gpus, self.answers = gpus, answers

    def request(self, _: object) -> None:
        pass

    def collect(self, _: float) -> tuple[tuple[Frame, ...], None, float]:
        frames = (Frame(taken_at_ns=0, gpus=self.gpus),) if self.answers else ()
        return frames, None, 0.0


def found(*gpus: GpuSample, pid: int | None = None, label: str | None = None) -> Target:
    finder = TargetFinder(cast("Any", Driver(*gpus)), HandClock(), has_lists=True)
    return finder.find(pid, label)


class TestTheProcess:
    def test_is_the_one_with_the_most_memory(self) -> None:
        target = found(gpu(0, (10, 5), (11, 7), (12, 6)))

        assert (target.label, target.pid) == ("0", 11)
        assert "3 processes use GPU 0" in target.note
        assert "the others are 12 and 10" in target.note

    def test_on_a_mig_instance_is_found_by_its_name(self) -> None:
        whole, part = gpu(0, (HERE, 5)), gpu(0, (HERE, 5), device=MIG)

        assert found(whole, part, label="0:1") == Target("0:1", HERE)
        assert found(whole, part) == found(whole, part, pid=HERE) == Target("0:1", HERE)

    def test_is_a_descendant_of_the_named_one(self, child: int) -> None:
        target = found(gpu(0, (child, 5)), pid=HERE)

        assert target == Target("0", child, f"GPU 0 is used by process {child} of that tree.")

    def test_is_one_of_several_descendants(self, child: int) -> None:
        with ending(subprocess.Popen(["sleep", "60"])) as other:
            target = found(gpu(0, (child, 5)), gpu(1, (other.pid, 7)), pid=HERE)

        assert (target.label, target.pid) == ("1", other.pid)
        assert "2 processes of that tree use a GPU" in target.note
        assert str(child) in target.note

    def test_on_several_gpus_is_watched_on_that_with_most_of_its_memory(self) -> None:
        target = found(gpu(0, (HERE, 5)), gpu(1, (HERE, 7)), pid=HERE)

        assert target.label == "1"
        assert "the process uses GPUs 0 and 1" in target.note
        assert found(gpu(0, (HERE, 5)), gpu(1, (HERE, 7)), pid=HERE, label="0").label == "0"


class TestItRefuses:
    @pytest.mark.parametrize("label", ["7", "-1", "0:1", "x", ""])
    def test_a_gpu_that_is_not_there(self, label: str) -> None:
        with pytest.raises(UsageError, match="this source has GPU 0"):
            found(gpu(0, (10, 5)), label=label)

    def test_a_gpu_that_is_divided(self) -> None:
        with pytest.raises(UsageError, match="GPU 0 is divided into GPU 0:1: choose"):
            found(gpu(0, (HERE, 5)), gpu(0, (HERE, 5), device=MIG), pid=HERE, label="0")

    def test_to_choose_between_gpus(self) -> None:
        with pytest.raises(UsageError, match="GPUs 0 and 1: choose one with --gpu"):
            found(gpu(0, (10, 5)), gpu(1, (11, 5)))

    def test_a_process_that_uses_none(self, child: int) -> None:
        with (
            ending(subprocess.Popen(["sleep", "60"])) as other,
            pytest.raises(GpumonError, match=rf"own process \({child} on GPU 0\)"),
        ):
            found(gpu(0, (child, 5)), pid=other.pid)

    def test_a_gpu_that_is_lost(self) -> None:
        with pytest.raises(SourceUnavailableError, match="GPU is lost"):
            found(gpu(0, error="GPU is lost"))

    def test_a_driver_that_does_not_answer(self) -> None:
        driver: Any = Driver(answers=False)
        with pytest.raises(SourceUnavailableError, match="has not answered"):
            TargetFinder(driver, HandClock(), has_lists=True).find(HERE, None)


class TestInAContainer:
    """The driver's lists are empty, or name processes outside of it."""

    @pytest.fixture(params=[(), ((GONE, 5),)])
    def outside(self, request: pytest.FixtureRequest) -> tuple[tuple[int, int], ...]:
        return cast("tuple[tuple[int, int], ...]", request.param)

    def test_a_named_process_and_gpu_are_believed(
        self, outside: tuple[tuple[int, int], ...]
    ) -> None:
        target = found(gpu(0, *outside), gpu(1, *outside), pid=HERE, label="1")

        assert (target.label, target.pid) == ("1", HERE)
        assert "the driver does not list who uses GPU 1" in target.note

    def test_the_only_gpu_that_works_is_taken(self, outside: tuple[tuple[int, int], ...]) -> None:
        target = found(gpu(0, *outside, busy=0.0), gpu(1, *outside, busy=0.7), pid=HERE)

        assert (target.label, target.pid) == ("1", HERE)

    @pytest.mark.parametrize("busy", [(0.0, 0.0), (0.7, 0.7)])
    def test_else_the_gpu_must_be_named(
        self, outside: tuple[tuple[int, int], ...], busy: tuple[float, float]
    ) -> None:
        with pytest.raises(GpumonError, match=f"`gpumon why {HERE} --gpu 0`"):
            found(gpu(0, *outside, busy=busy[0]), gpu(1, *outside, busy=busy[1]), pid=HERE)

    def test_a_command_is_watched_once_a_gpu_works(self, child: int) -> None:
        driver = Driver(gpu(0, busy=0.0))
        finder = TargetFinder(cast("Any", driver), HandClock(), has_lists=True)

        assert finder._of_command(HERE, driver.collect(0)[0][0], None) is None
        driver.gpus = (gpu(0, busy=0.8),)
        target = finder._of_command(HERE, driver.collect(0)[0][0], None)
        assert target is not None
        assert (target.label, target.pid) == ("0", HERE)

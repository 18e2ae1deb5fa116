"""Every function that gpumon calls fails with every code, on each kind of machine.

The functions are those that the fake counted while a source read every field once; the codes are
those of pynvml, and two unknown ones. CI tries one code of each kind, ``make truth`` all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pynvml
import pytest

from gpumon.core.sample import GpuSample
from tests.builders.driver import EVERY_FIELD, DriverStory, answered
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import OLD_DRIVER, PRESENT_DRIVER, DriverGeneration
from tests.fakenvml.in_process import shown_to_this_process
from tests.needs import in_make_truth

CODES = sorted(
    {
        value
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(value, int)
    }
    | {77, -1}
)
ONE_OF_EACH_KIND = (1, 3, 6, 7, 13, 15, 17, 77)
"""Driver gone, not supported, no data, buffer too small, missing, lost, blocked, unknown."""
TRIED = CODES if os.environ.get("GPUMON_WHOLE_TABLE") else ONE_OF_EACH_KIND

PERMANENT_BY_MEANING = frozenset({3, 4, 13, 25, 26})
"""Not supported, not permitted, not in this driver: such a field may stay away."""

PERIOD_S = 2.0
FAILS_FOR = 3
"""Ticks that a fault lasts: longer than any field but the processes rests."""
BACK_WITHIN = 6
"""Ticks after which every GPU is read again."""
ALL_ANSWERS_WITHIN = 18
"""More ticks, in which every field is read."""
WITHOUT_EVENTS = EVERY_FIELD - {"events"}
"""Starting their thread takes longer than everything else."""


class Kind(NamedTuple):
    """Two busy GPUs, and a third with two busy MIG instances, if there is one."""

    name: str
    driver: DriverGeneration
    has_mig: bool

    def __str__(self) -> str:
        return self.name


KINDS = (
    Kind("present-driver", PRESENT_DRIVER, has_mig=False),
    Kind("old-driver", OLD_DRIVER, has_mig=False),
    Kind("with-mig", PRESENT_DRIVER, has_mig=True),
)


class Machine(NamedTuple):
    """One of that kind, and its answers where nothing fails.

    Attributes:
        functions: What the source calls, from its first reading on.
        ticks: The sample of every device, by UUID, for each tick.
        watched: UUIDs of the devices with a utilisation.
    """

    fake: FakeNvml
    functions: tuple[str, ...]
    ticks: tuple[dict[str, GpuSample], ...]
    watched: tuple[str, ...]


def without_a_fault(fake: FakeNvml) -> Machine:
    fake.forget_calls()
    story = DriverStory(fake, period_s=PERIOD_S)
    ticks = []
    for _ in range(len(TRIED) * (FAILS_FOR + BACK_WITHIN) + ALL_ANSWERS_WITHIN):
        story.tick()
        ticks.append({sample.device.uuid: sample for sample in story.frame.gpus})
    watched = tuple(uuid for uuid, sample in ticks[-1].items() if sample.busy)
    story.close()
    assert all(story.idle_ns(uuid) == 0 for uuid in watched)
    return Machine(fake, tuple(fake.all_calls()), tuple(ticks), watched)


@pytest.fixture(scope="class", params=KINDS, ids=str)
def machine(
    request: pytest.FixtureRequest,
    library_of: Callable[[DriverGeneration], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Machine]:
    kind: Kind = request.param
    library, control = library_of(kind.driver), tmp_path_factory.mktemp("driver") / "gpus"
    with shown_to_this_process(library, control, kind.driver, gpus=2 + kind.has_mig) as fake:
        fake.keep_busy(0, 1)
        if kind.has_mig:
            fake.cut(2, 2)
            for part in range(2):
                fake.part_wave(2, part, period_s=1.0, busy_ratio=1.0)
        yield without_a_fault(fake)


def at_once(sample: GpuSample) -> tuple[object, ...]:
    """The values that each tick reads, which depend on the GPU alone."""
    return sample.busy, sample.utilization_ratio, sample.power_watts, sample.error


class Fault(NamedTuple):
    """One function that fails, for the first GPU or for all."""

    function: str
    gpu: int | None
    reload: bool


class FaultyDriver:
    """A source while a function answers one code after another."""

    def __init__(self, fault: Fault, machine: Machine) -> None:
        self._fault, self._fake, self._machine = fault, machine.fake, machine
        options = EVERY_FIELD if "Event" in fault.function else WITHOUT_EVENTS
        self._story = DriverStory(machine.fake, options=options, period_s=PERIOD_S)
        one = fault.gpu is not None
        self._others = [uuid for uuid in machine.watched if one and uuid != self._fake.uuid(0)]
        self._passed = 0

    def answers(self, codes: Sequence[int]) -> list[str]:
        """Return what broke while the function answered these codes, and after."""
        code = 0
        try:
            for code in codes:
                self._comes_and_goes(code)
            if not PERMANENT_BY_MEANING.intersection(codes):
                self._reports_all_again()
        except Exception as error:  # noqa: BLE001 - all failures are reported at once
            return [f"{self._fault} answers {code}: {type(error).__name__}: {error}"[:300]]
        finally:
            self._fail(0)
            self._story.close()
        return []

    def _fail(self, code: int) -> None:
        self._fake.fail(self._fault.function, code, gpu=self._fault.gpu)

    def _comes_and_goes(self, code: int) -> None:
        story, machine = self._story, self._machine
        self._fail(code)
        if self._fault.reload:
            self._fake.reload_driver()
        for _ in range(FAILS_FOR):
            story.tick()
            for uuid in self._others:
                assert at_once(story.sample(uuid)) == at_once(machine.ticks[self._passed][uuid])
            self._passed += 1
        self._fail(0)
        ticks = story.ticks_until_read(machine.watched, most=BACK_WITHIN)
        assert ticks, "not read again"
        self._passed += ticks
        assert all(story.idle_ns(uuid) == 0 for uuid in machine.watched), "counted as idle"

    def _reports_all_again(self) -> None:
        self._story.tick(ALL_ANSWERS_WITHIN)
        for uuid, expected in self._machine.ticks[-1].items():
            gone = answered(expected) - answered(self._story.sample(uuid)) - {"error"}
            assert not gone, f"no answer after the fault: {gone}"


class TestAFunctionThatFails:
    @pytest.mark.parametrize(
        ("gpu", "reload"),
        [
            pytest.param(0, False, id="for-one-gpu"),
            pytest.param(None, False, id="for-all", marks=in_make_truth),
            pytest.param(None, True, id="for-all-while-nvml-is-reopened"),
        ],
    )
    def test_with_any_code_causes_no_idle_time_and_affects_no_other_gpu(
        self, machine: Machine, gpu: int | None, reload: bool
    ) -> None:
        lasting = [code for code in TRIED if code in PERMANENT_BY_MEANING]
        passing = [code for code in TRIED if code not in PERMANENT_BY_MEANING]
        broken = []
        for function in machine.functions:
            fault = Fault(function, gpu, reload)
            for codes in (passing, *([code] for code in lasting)):
                broken += FaultyDriver(fault, machine).answers(codes)
        assert len(machine.functions) >= 25
        assert not broken, f"{len(broken)} stories:\n" + "\n".join(broken)

"""Every function that gpumon calls fails with every code, on each kind of machine.

Which functions those are is what the fake counted while a source read every
field once; which codes there are is what pynvml knows, and two that no one
knows. The clock is the test's, so a minute takes a millisecond.
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

CODES = sorted(
    {
        value
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(value, int)
    }
    | {77, -1}
)
ONE_OF_EACH_KIND = (1, 3, 6, 7, 13, 15, 17, 77)
"""Driver gone, not supported, nothing there, too little room, missing, lost, blocked, unknown."""
IS_WHOLE = bool(os.environ.get("GPUMON_WHOLE_TABLE"))
"""Every code fails one GPU in each run of the tests; all GPUs at once only in ``make truth``."""

PERMANENT_BY_MEANING = frozenset({3, 4, 13, 25, 26})
"""Not supported, not permitted, not in this driver: such a field may stay away."""

PERIOD_S = 2.0

FAILS_FOR = 3
"""Ticks that a fault lasts: longer than any field but the processes rests."""

BACK_WITHIN = 6
"""Ticks after which every GPU is read again."""

ALL_ANSWERS_WITHIN = 6
"""And ticks after that, in which every field had its turn."""

WITHOUT_EVENTS = EVERY_FIELD - {"events"}
"""They come by a thread of their own, which costs more to start than all else takes."""


class Kind(NamedTuple):
    """Two busy GPUs: one that fails, and one beside it.

    Attributes:
        name: For the id of the test.
        driver: Which generation.
        cut: Whether there is a third, cut by MIG into two busy instances.
        codes: What its functions answer.
    """

    name: str
    driver: DriverGeneration
    cut: bool
    codes: Sequence[int]

    def __str__(self) -> str:
        return self.name


KINDS = (
    Kind("present-driver", PRESENT_DRIVER, False, CODES),
    Kind("old-driver", OLD_DRIVER, False, ONE_OF_EACH_KIND),
    Kind("with-mig", PRESENT_DRIVER, True, ONE_OF_EACH_KIND),
)


class Machine(NamedTuple):
    """One of that kind, and how it goes where nothing fails.

    Attributes:
        functions: What the source calls, from its first reading on.
        ticks: What every device says, by UUID, for each tick.
        watched: UUIDs of what has a utilisation.
    """

    kind: Kind
    fake: FakeNvml
    functions: tuple[str, ...]
    ticks: tuple[dict[str, GpuSample], ...]
    watched: tuple[str, ...]


def seen_well(kind: Kind, fake: FakeNvml) -> Machine:
    fake.forget_calls()
    story = DriverStory(fake, period_s=PERIOD_S)
    ticks = []
    for _ in range(len(kind.codes) * (FAILS_FOR + BACK_WITHIN) + ALL_ANSWERS_WITHIN):
        story.tick()
        ticks.append({sample.device.uuid: sample for sample in story.frame.gpus})
    watched = tuple(uuid for uuid, sample in ticks[-1].items() if sample.busy)
    story.close()
    assert all(story.idle_ns(uuid) == 0 for uuid in watched)
    return Machine(kind, fake, tuple(fake.all_calls()), tuple(ticks), watched)


@pytest.fixture(scope="class", params=KINDS, ids=str)
def machine(
    request: pytest.FixtureRequest,
    library_of: Callable[[DriverGeneration], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Machine]:
    kind: Kind = request.param
    library, control = library_of(kind.driver), tmp_path_factory.mktemp("driver") / "gpus"
    with shown_to_this_process(library, control, kind.driver, gpus=2 + kind.cut) as fake:
        fake.keep_busy(0, 1)
        if kind.cut:
            fake.cut(2, 2)
            for part in range(2):
                fake.part_wave(2, part, period_s=1.0, busy_ratio=1.0)
        yield seen_well(kind, fake)


def at_once(sample: GpuSample) -> tuple[object, ...]:
    """What is read again at each tick, and hangs on nothing but the GPU itself."""
    return sample.busy, sample.utilization_ratio, sample.power_watts, sample.error


class Fault(NamedTuple):
    """One function that fails, for the first GPU or for all."""

    function: str
    gpu: int | None
    reload: bool


class FaultyDriver:
    """One source, on which a function answers one code after another."""

    def __init__(self, fault: Fault, machine: Machine) -> None:
        self._fault, self._fake, self._machine = fault, machine.fake, machine
        options = EVERY_FIELD if "Event" in fault.function else WITHOUT_EVENTS
        self._story = DriverStory(machine.fake, options=options, period_s=PERIOD_S)
        one = fault.gpu is not None
        self._others = [uuid for uuid in machine.watched if one and uuid != self._fake.uuid(0)]
        self._passed = 0

    def answers(self, codes: Sequence[int]) -> list[str]:
        """What broke while it answered these, and after."""
        code = 0
        try:
            for code in codes:
                self._comes_and_goes(code)
            if not PERMANENT_BY_MEANING.intersection(codes):
                self._reports_all_again()
        except Exception as error:  # noqa: BLE001 - all that broke is reported at once
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
        took = story.ticks_until_read(machine.watched, most=BACK_WITHIN)
        assert took, "not read again"
        self._passed += took
        assert all(story.idle_ns(uuid) == 0 for uuid in machine.watched), "busy, and idle?"

    def _reports_all_again(self) -> None:
        self._story.tick(ALL_ANSWERS_WITHIN)
        for uuid, expected in self._machine.ticks[-1].items():
            gone = answered(expected) - answered(self._story.sample(uuid)) - {"error"}
            assert not gone, f"no answer any more: {gone}"


class TestAFunctionThatFails:
    @pytest.mark.parametrize(
        ("gpu", "reload"),
        [(0, False), (None, False), (None, True)],
        ids=["for-one-gpu", "for-all", "for-all-while-nvml-is-reopened"],
    )
    def test_with_any_code_makes_no_one_idle_harms_no_other_and_is_got_over(
        self, machine: Machine, gpu: int | None, reload: bool
    ) -> None:
        tried = ONE_OF_EACH_KIND if gpu is None and not IS_WHOLE else machine.kind.codes
        lasting = [code for code in tried if code in PERMANENT_BY_MEANING]
        passing = [code for code in tried if code not in PERMANENT_BY_MEANING]
        broken = []
        for function in machine.functions:
            fault = Fault(function, gpu, reload)
            for codes in (passing, *([code] for code in lasting)):
                broken += FaultyDriver(fault, machine).answers(codes)
        assert len(machine.functions) >= 25
        assert not broken, f"{len(broken)} stories:\n" + "\n".join(broken)

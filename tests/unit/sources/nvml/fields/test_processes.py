"""Specification of the processes of a GPU: who, with how much memory, for what share of time."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import ProcessSample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import FUNCTION_NOT_FOUND
from gpumon.sources.nvml.fields.processes import ProcessField, process_field
from gpumon.sources.nvml.fields.table import nvml_options
from gpumon.sources.process_owners import ProcessNames, ProcessOwners
from tests.builders_nvml import Clock, Open
from tests.fakenvml.control import GPU_IS_LOST, NOT_SUPPORTED, FakeNvml
from tests.neighbours import NOBODY

LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
OLDER_LIST = "nvmlDeviceGetComputeRunningProcesses_v2"
OLDEST_LIST = "nvmlDeviceGetComputeRunningProcesses"
SHARES = "nvmlDeviceGetProcessesUtilizationInfo"
OLDER_SHARES = "nvmlDeviceGetProcessUtilization"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
NOBODYS_PID = (1 << 22) + 1
"""No kernel gives it to a process, so of no user anything is known."""


def seconds(number: float) -> int:
    return int(number * NS_PER_S)


@pytest.fixture
def field(library: NvmlLibrary, handle: int) -> ProcessField:
    return ProcessField(library, handle)


class TestTheList:
    def test_is_empty_where_nobody_computes(self, field: ProcessField) -> None:
        assert field.read(0) == ()

    def test_names_who_is_on_this_gpu(self, fake_nvml: FakeNvml, field: ProcessField) -> None:
        fake_nvml.run(0, NOBODYS_PID, memory_bytes=2 << 30)
        fake_nvml.run(1, 4001)

        assert field.read(0) == (ProcessSample(NOBODYS_PID, 2 << 30),)

    def test_has_no_memory_of_a_process_where_the_driver_keeps_that_to_itself(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, NOBODYS_PID, memory_bytes=0xFFFF_FFFF_FFFF_FFFF)

        assert field.read(0) == (ProcessSample(NOBODYS_PID, None),)

    def test_can_be_longer_than_there_was_room_for(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        for pid in range(100):
            fake_nvml.run(0, pid)

        found = field.read(0)

        assert found is not None
        assert [process.pid for process in found] == list(range(100))

    def test_is_no_answer_where_it_is_not_to_be_had(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.fail(LIST, NOT_SUPPORTED)

        assert [field.read(0), field.read(0)] == [None, None]
        assert fake_nvml.calls(LIST) == 1
        assert fake_nvml.calls(OLDER_LIST) == 0

    def test_comes_back_after_a_failure_that_passes(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, 4000)
        fake_nvml.fail(LIST, GPU_IS_LOST)
        assert field.read(0) is None

        fake_nvml.fail(LIST, 0)

        assert field.read(0) is not None
        assert fake_nvml.calls(OLDER_LIST) == 0

    @pytest.mark.parametrize(
        ("missing", "asked"), [((LIST,), OLDER_LIST), ((LIST, OLDER_LIST), OLDEST_LIST)]
    )
    def test_of_an_older_driver_is_as_good(
        self, fake_nvml: FakeNvml, field: ProcessField, missing: tuple[str, ...], asked: str
    ) -> None:
        for pid in (4000, 4001, 4002):
            fake_nvml.run(0, pid, memory_bytes=pid << 20)
        for function in missing:
            fake_nvml.fail(function, FUNCTION_NOT_FOUND)

        found = field.read(0)

        assert found is not None
        assert [process[:2] for process in found] == [
            (pid, pid << 20) for pid in (4000, 4001, 4002)
        ]
        assert fake_nvml.calls(asked) == 1

    def test_never_asks_for_graphics_processes_which_takes_milliseconds(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        source = open_source()
        for _ in range(4):
            clock.ahead_ns += seconds(6)
            source.read()

        asked = fake_nvml.all_calls()
        assert asked[LIST] >= 6
        assert not [name for name in asked if name.startswith(GRAPHICS)]


class TestTheRecordsOfADriver:
    def test_that_puts_a_number_more_into_them_are_asked_for_in_the_form_before(self) -> None:
        """535.54 knows protected memory, and not yet the call that took its number over."""

        class Driver(NvmlLibrary):
            def __init__(self, *names: str) -> None:
                self.names = names

            def has(self, name: str) -> bool:
                return name in self.names

        from gpumon.sources.nvml.fields.processes import usable_lists

        protected, details = (
            "nvmlDeviceGetConfComputeMemSizeInfo",
            "nvmlDeviceGetRunningProcessDetailList",
        )
        lists = (LIST, OLDER_LIST, OLDEST_LIST)

        def usable(*more: str) -> list[str]:
            return usable_lists(Driver(*lists, *more))

        assert usable() == list(lists)
        assert usable(protected) == [OLDER_LIST, OLDEST_LIST]
        assert usable(protected, details) == list(lists)


class TestASwitchedOffField:
    def test_tells_no_name_unless_it_is_asked_for(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int
    ) -> None:
        fake_nvml.run(0, NOBODYS_PID, name=b"python")

        without = process_field(library, handle, nvml_options())
        assert without.read(0) == (ProcessSample(NOBODYS_PID, 1 << 30),)
        assert fake_nvml.calls("nvmlSystemGetProcessName") == 0

        with_names = process_field(library, handle, nvml_options(on=["process_names"]))
        (process,) = with_names.read(0) or ()
        assert process.name == "python"


class TestAName:
    @pytest.fixture
    def proc(self, tmp_path: Path) -> Path:
        """A /proc that shows every process of the host, 4000 among them."""
        (tmp_path / "self" / "ns").mkdir(parents=True)
        (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
        (tmp_path / "4000").mkdir()
        (tmp_path / "4000" / "comm").write_bytes(b"trainer\n")
        uids = f"Uid:\t0\t{os.getuid()}\t0\t0\n"
        (tmp_path / "4000" / "status").write_text(f"Name:\ttrainer\n{uids}")
        return tmp_path

    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            ("python", "python"),
            ("/opt/conda/bin/python3.11", "python3.11"),
            ("/usr/bin/python3 train.py --password=hush", "python3"),
            ("tr\x1bain", "tr\ufffdain"),
            ("\u202eevil", "\ufffdevil"),
            ("x" * 1000, "x" * 127 + "\u2026"),
        ],
    )
    def test_is_the_programs_own_without_folder_and_words(
        self, proc: Path, raw: str, shown: str
    ) -> None:
        assert ProcessNames(lambda _: raw, proc=proc).name(4000) == shown

    @pytest.mark.parametrize("nothing", [None, "", "  "])
    def test_is_the_kernels_where_the_driver_has_none(
        self, proc: Path, nothing: str | None
    ) -> None:
        assert ProcessNames(lambda _: nothing, proc=proc).name(4000) == "trainer"

    def test_is_no_answer_where_nobody_has_one(self, proc: Path) -> None:
        names = ProcessNames(lambda _: None, proc=proc)

        assert (names.name(4001), names.user(ProcessOwners(proc).uid(4001))) == (None, None)

    def test_is_asked_for_once_until_the_process_leaves(self, proc: Path) -> None:
        asked: list[int] = []

        def ask(pid: int) -> str:
            asked.append(pid)
            return f"program-{len(asked)}"

        names = ProcessNames(ask, proc=proc)

        assert [names.name(4000), names.name(4000)] == ["program-1"] * 2
        names.keep_only(set())
        assert names.name(4000) == "program-2"

    def test_comes_with_the_user_who_runs_it(self, proc: Path) -> None:
        user = ProcessNames(lambda _: None, proc=proc).user(ProcessOwners(proc).uid(4000))

        assert user == pwd.getpwuid(os.getuid()).pw_name

    def test_comes_with_the_user_that_a_process_has_become(self, proc: Path) -> None:
        """Its folder belongs to the superuser then."""
        (proc / "4000" / "status").write_text(f"Name:\ttrainer\nUid:\t0\t{NOBODY}\t0\t0\n")

        user = ProcessNames(lambda _: None, proc=proc).user(ProcessOwners(proc).uid(4000))

        assert user == pwd.getpwuid(NOBODY).pw_name

    def test_and_user_are_not_looked_up_where_a_number_is_another_process(self, proc: Path) -> None:
        namespace = proc / "self" / "ns" / "pid"
        namespace.unlink()
        namespace.symlink_to("pid:[4026532000]")
        names = ProcessNames(lambda _: None, proc=proc)

        assert (names.name(4000), names.user(ProcessOwners(proc).uid(4000))) == (None, None)


class TestAShare:
    def test_is_unknown_at_first_for_the_driver_would_tell_of_load_that_is_over(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, 4000, sm=80)

        assert shares(field.read(0)) == {4000: None}

    def test_is_of_the_time_since_the_reading_before(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, 4000, sm=80)
        fake_nvml.run(0, 4001, sm=0)
        field.read(0)

        assert shares(field.read(seconds(10))) == {4000: 0.8, 4001: 0.0}

    def test_is_asked_for_every_ten_seconds_and_repeated_in_between(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, 4000, sm=80)
        told = [shares(field.read(seconds(5 * number))) for number in range(6)]

        assert told == [{4000: None}] * 2 + [{4000: 0.8}] * 4
        assert fake_nvml.calls(SHARES) + fake_nvml.calls(OLDER_SHARES) == 3
        assert fake_nvml.calls(LIST) == 6

    def test_of_an_idle_gpu_is_nothing_and_not_asked_while_nobody_is_there(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        field.read(0)
        assert fake_nvml.calls(SHARES) + fake_nvml.calls(OLDER_SHARES) == 0

        fake_nvml.run(0, 4000, sm=0)

        assert shares(field.read(seconds(5))) == {4000: 0.0}

    @pytest.mark.parametrize("newer", [True, False])
    def test_comes_from_either_generation_of_the_call(
        self, fake_nvml: FakeNvml, field: ProcessField, newer: bool
    ) -> None:
        fake_nvml.fail(OLDER_SHARES if newer else SHARES, FUNCTION_NOT_FOUND)
        fake_nvml.run(0, 4000, sm=37)
        field.read(0)

        assert shares(field.read(seconds(10))) == {4000: 0.37}
        assert fake_nvml.calls(SHARES if newer else OLDER_SHARES) == 2

    def test_above_a_hundred_percent_is_unknown_which_is_not_idle(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, 4000, sm=80)
        fake_nvml.run(0, 4001, sm=4_294_967)
        field.read(0)

        assert shares(field.read(seconds(10))) == {4000: 0.8, 4001: None}

    def test_of_a_process_that_came_after_they_were_read_is_unknown(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, 4000, sm=80)
        field.read(0)
        field.read(seconds(10))
        fake_nvml.run(0, 4001, sm=50)

        assert shares(field.read(seconds(15))) == {4000: 0.8, 4001: None}
        assert shares(field.read(seconds(20))) == {4000: 0.8, 4001: 0.5}

    def test_with_a_stamp_that_was_seen_before_is_dropped(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, 4000, sm=80)
        fake_nvml.run(0, 4001, sm=50)
        field.read(0)
        fake_nvml.control.processes[1].use_stamp_us = 1_000_000

        assert shares(field.read(seconds(10))) == {4000: 0.8, 4001: 0.0}

    def test_is_found_again_after_the_stamps_began_anew(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.run(0, 4000, sm=80)
        field.read(0)
        fake_nvml.stamps_count(0)  # since boot, far behind the wall clock

        told = [shares(field.read(seconds(10 * number))) for number in range(1, 10)]

        assert told[-1] == {4000: 0.8}

    @pytest.mark.parametrize("newer", [True, False])
    def test_of_many_processes_takes_more_room_than_at_first(
        self,
        fake_nvml: FakeNvml,
        field: ProcessField,
        monkeypatch: pytest.MonkeyPatch,
        newer: bool,
    ) -> None:
        monkeypatch.setattr("gpumon.sources.nvml.fields.processes._FIRST_ROOM", 16)
        fake_nvml.fail(OLDER_SHARES if newer else SHARES, FUNCTION_NOT_FOUND)
        for pid in range(4000, 4100):
            fake_nvml.run(0, pid, sm=25)
        field.read(0)

        told = shares(field.read(seconds(10)))

        assert set(told.values()) == {0.25}
        assert len(told) == 100

    def test_is_unknown_where_the_board_does_not_tell(
        self, fake_nvml: FakeNvml, field: ProcessField
    ) -> None:
        fake_nvml.fail(SHARES, NOT_SUPPORTED)
        fake_nvml.run(0, 4000, sm=80)

        told = [shares(field.read(seconds(10 * number))) for number in range(4)]

        assert told == [{4000: None}] * 4
        assert (fake_nvml.calls(SHARES), fake_nvml.calls(OLDER_SHARES)) == (1, 0)


def shares(processes: tuple[ProcessSample, ...] | None) -> dict[int, float | None]:
    assert processes is not None
    return {process.pid: process.sm_ratio for process in processes}


class TestWhoRunsAProcess:
    def test_is_told_by_the_kernels_number_without_being_asked_for(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, handle: int, tmp_path: Path
    ) -> None:
        (tmp_path / "self/ns").mkdir(parents=True)
        (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
        (tmp_path / "4000").mkdir()
        (tmp_path / "4000/status").write_text("Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n")
        fake_nvml.run(0, 4000)
        fake_nvml.run(0, 4001)
        field = ProcessField(library, handle, owners=ProcessOwners(tmp_path))

        told = field.read(0)

        assert told is not None
        assert {one.pid: one.uid for one in told} == {4000: 1000, 4001: None}

"""Tests of the processes of a GPU."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import ProcessSample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import FUNCTION_NOT_FOUND
from gpumon.sources.nvml.fields.processes import ProcessField, process_field, usable_lists
from gpumon.sources.nvml.fields.table import nvml_options
from gpumon.sources.process_owners import ProcessNames, ProcessOwners
from tests.builders.driver import Fake
from tests.builders.driver_faults import LIST
from tests.builders.nvml import UNUSED_PID
from tests.other_users import OTHER_UID

OLDER_LIST, OLDEST_LIST = LIST[:-1] + "2", LIST[:-3]
SHARES, OLDER_SHARES = "nvmlDeviceGetProcessesUtilizationInfo", "nvmlDeviceGetProcessUtilization"


@pytest.fixture
def field(library: NvmlLibrary, handle: int) -> ProcessField:
    return ProcessField(library, handle)


class TestTheList:
    @pytest.mark.parametrize(
        ("memory_bytes", "reported"),
        [(2 << 30, 2 << 30), pytest.param((1 << 64) - 1, None, id="the driver keeps it to itself")],
    )
    def test_has_the_processes_of_this_gpu_with_their_memory(
        self, fake: Fake, field: ProcessField, memory_bytes: int, reported: int | None
    ) -> None:
        fake.run(0, UNUSED_PID, memory_bytes=memory_bytes)
        fake.run(1, 4001)

        assert field.read(0) == (ProcessSample(UNUSED_PID, reported),)

    @pytest.mark.parametrize(
        ("missing", "asked"), [((LIST,), OLDER_LIST), ((LIST, OLDER_LIST), OLDEST_LIST)]
    )
    def test_comes_from_an_older_call_of_an_older_driver(
        self, fake: Fake, field: ProcessField, missing: tuple[str, ...], asked: str
    ) -> None:
        for pid in (4000, 4001, 4002):
            fake.run(0, pid, memory_bytes=pid << 20)
        for function in missing:
            fake.fail(function, FUNCTION_NOT_FOUND)

        found = [process[:2] for process in field.read(0) or ()]

        assert found == [(pid, pid << 20) for pid in (4000, 4001, 4002)]
        assert fake.calls(asked) == 1

    def test_with_longer_records_is_not_used(self) -> None:
        """535.54 knows protected memory, and not yet the call that took its number over."""

        class Driver(NvmlLibrary):
            def __init__(self, *names: str) -> None:
                self.names = (LIST, OLDER_LIST, OLDEST_LIST, *names)

            def has(self, name: str) -> bool:
                return name in self.names

        protected = "nvmlDeviceGetConfComputeMemSizeInfo"
        details = "nvmlDeviceGetRunningProcessDetailList"

        assert usable_lists(Driver()) == [LIST, OLDER_LIST, OLDEST_LIST]
        assert usable_lists(Driver(protected)) == [OLDER_LIST, OLDEST_LIST]
        assert usable_lists(Driver(protected, details)) == [LIST, OLDER_LIST, OLDEST_LIST]

    @pytest.mark.parametrize(("second_at_s", "calls"), [(8.9, 1), (9.0, 2)])
    def test_has_new_shares_after_nine_seconds(
        self, fake: Fake, field: ProcessField, second_at_s: float, calls: int
    ) -> None:
        fake.run(0, 4000)
        fake.run(0, 4001)

        field.read(0)
        field.read(round(second_at_s * NS_PER_S))

        assert fake.calls(SHARES) == calls

    def test_has_names_only_on_request(self, fake: Fake, library: NvmlLibrary, handle: int) -> None:
        fake.run(0, UNUSED_PID, name=b"python")

        without = process_field(library, handle, nvml_options())
        assert without.read(0) == (ProcessSample(UNUSED_PID, 1 << 30),)
        assert fake.calls("nvmlSystemGetProcessName") == 0

        with_names = process_field(library, handle, nvml_options(on=["process_names"]))
        (process,) = with_names.read(0) or ()
        assert process.name == "python"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc that shows every process of the host, 4000 among them."""
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    (tmp_path / "4000").mkdir()
    (tmp_path / "4000" / "comm").write_bytes(b"trainer\n")
    runs_as(tmp_path, os.getuid())
    return tmp_path


def runs_as(proc: Path, uid: int) -> None:
    (proc / "4000" / "status").write_text(f"Name:\ttrainer\nUid:\t0\t{uid}\t0\t0\n")


def name_and_user(proc: Path, pid: int) -> tuple[str | None, str | None]:
    """Name and user by the kernel, without a name by the driver."""
    names = ProcessNames(lambda _: None, proc=proc)
    return names.name(pid), names.user(ProcessOwners(proc).owner(pid).uid)


class TestAName:
    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            ("python", "python"),
            ("/opt/conda/bin/python3.11", "python3.11"),
            ("/usr/bin/python3 train.py --password=hush", "python3"),
            ("tr\x1bain", "tr\ufffdain"),
            ("\u202eevil", "\ufffdevil"),
            ("x" * 1000, "x" * 127 + "\u2026"),
            (None, "trainer"),  # the kernel's
            ("", "trainer"),
            ("  ", "trainer"),
        ],
    )
    def test_is_the_programs_own_without_folder_and_arguments(
        self, proc: Path, raw: str | None, shown: str
    ) -> None:
        assert ProcessNames(lambda _: raw, proc=proc).name(4000) == shown

    def test_is_read_once_per_process(self, proc: Path) -> None:
        asked: list[int] = []

        def ask(pid: int) -> str:
            asked.append(pid)
            return f"program-{len(asked)}"

        names = ProcessNames(ask, proc=proc)

        assert [names.name(4000), names.name(4000)] == ["program-1"] * 2
        names.keep_only(set())
        assert names.name(4000) == "program-2"

    @pytest.mark.parametrize(
        "uid", [os.getuid(), pytest.param(OTHER_UID, id="its folder belongs to the superuser then")]
    )
    def test_comes_with_the_present_user_of_the_process(self, proc: Path, uid: int) -> None:
        runs_as(proc, uid)

        assert name_and_user(proc, 4000) == ("trainer", pwd.getpwuid(uid).pw_name)


def shares(field: ProcessField, at_s: int) -> dict[int, float | None]:
    """Who has which share of the SMs, as it is read at that second."""
    processes = field.read(at_s * NS_PER_S)
    assert processes is not None
    return {process.pid: process.sm_ratio for process in processes}


class TestAShare:
    def test_is_of_the_time_since_the_last_reading(self, fake: Fake, field: ProcessField) -> None:
        """All of the driver's buffer would show of load that is over."""
        fake.run(0, 4000, sm=80)
        fake.run(0, 4001, sm=0)

        assert shares(field, 0) == {4000: None, 4001: None}
        assert shares(field, 10) == {4000: 0.8, 4001: 0.0}

    def test_is_read_every_ten_seconds(self, fake: Fake, field: ProcessField) -> None:
        fake.run(0, 4000, sm=80)
        fake.run(0, 4001, sm=0)
        reported = [shares(field, 5 * number) for number in range(6)]

        assert reported == [{4000: None, 4001: None}] * 2 + [{4000: 0.8, 4001: 0.0}] * 4
        assert fake.calls(SHARES) + fake.calls(OLDER_SHARES) == 3
        assert fake.calls(LIST) == 6

    def test_is_not_read_for_a_single_process(self, fake: Fake, field: ProcessField) -> None:
        fake.run(0, 4000, sm=80)

        assert [shares(field, 10 * number) for number in range(3)] == [{4000: None}] * 3
        assert fake.calls(SHARES) + fake.calls(OLDER_SHARES) == 0

    @pytest.mark.parametrize(("call", "other"), [(SHARES, OLDER_SHARES), (OLDER_SHARES, SHARES)])
    def test_comes_from_either_call_for_any_number_of_processes(
        self,
        fake: Fake,
        field: ProcessField,
        monkeypatch: pytest.MonkeyPatch,
        call: str,
        other: str,
    ) -> None:
        monkeypatch.setattr("gpumon.sources.nvml.fields.processes._FIRST_CAPACITY", 16)
        fake.fail(other, FUNCTION_NOT_FOUND)
        fake.run(0, 4000, sm=37)
        fake.run(0, 4001, sm=37)
        field.read(0)
        assert shares(field, 10) == {4000: 0.37, 4001: 0.37}
        assert fake.calls(call) == 2

        for pid in range(4002, 4100):
            fake.run(0, pid, sm=37)

        assert shares(field, 20) == dict.fromkeys(range(4000, 4100), 0.37)

    def test_above_100_percent_is_unknown(self, fake: Fake, field: ProcessField) -> None:
        fake.run(0, 4000, sm=80)
        fake.run(0, 4001, sm=4_294_967)
        field.read(0)

        assert shares(field, 10) == {4000: 0.8, 4001: None}

    def test_of_a_new_process_is_unknown(self, fake: Fake, field: ProcessField) -> None:
        fake.run(0, 4000, sm=80)
        fake.run(0, 4001, sm=0)
        field.read(0)
        field.read(10 * NS_PER_S)
        fake.run(0, 4002, sm=50)

        assert shares(field, 15) == {4000: 0.8, 4001: 0.0, 4002: None}
        assert shares(field, 20) == {4000: 0.8, 4001: 0.0, 4002: 0.5}

    def test_is_known_again_after_the_stamps_restarted(
        self, fake: Fake, field: ProcessField
    ) -> None:
        fake.run(0, 4000, sm=80)
        fake.run(0, 4001, sm=0)
        field.read(0)
        fake.stamps_count(0)  # since boot, far behind the wall clock

        reported = [shares(field, 10 * number) for number in range(1, 10)]

        assert reported[-1] == {4000: 0.8, 4001: 0.0}

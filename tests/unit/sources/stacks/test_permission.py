"""Tests of whether stacks may be read: with a simulated /proc, and where possible for real."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.sources.stacks import permission
from gpumon.sources.stacks.permission import (
    StackRefusal,
    has_capability,
    kernel_permits,
    opts_out,
    ptrace_scope,
    refusal,
    sudo_line,
)
from tests.builders.proc import PID, FakeProc
from tests.other_users import OTHER_UID, as_root
from tests.processes import ending
from tests.programs import ran_python
from tests.waiting import wait_until

ORDINARY_UID = 1_000
ALL, NONE = "000001ffffffffff", "0000000000000000"


class Machine:
    """A machine with one process, seen by an ordinary user whom the kernel refuses."""

    def __init__(self, folder: Path) -> None:
        self._proc = FakeProc(folder / "proc")
        self._proc.task(PID)
        self.folder = folder
        self.is_refused = True
        self.environ(b"PATH=/bin\0")
        self.belongs_to(ORDINARY_UID)
        (self._proc.folder / "self").mkdir()
        self.capabilities(NONE)

    def state(self, letter: str) -> None:
        self._proc.task(PID, state=letter)

    def kernel_thread(self) -> None:
        stat = self._proc.folder / str(PID) / "stat"
        stat.write_text(stat.read_text().replace(" 1 0 0 0 0 0 ", " 1 0 0 0 0 2097152 ", 1))

    def environ(self, raw: bytes) -> None:
        (self._proc.folder / str(PID) / "environ").write_bytes(raw)

    def belongs_to(self, uid: int) -> None:
        text = f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        (self._proc.folder / str(PID) / "status").write_text(text)

    def capabilities(self, mask: str) -> None:
        (self._proc.folder / "self/status").write_text(f"Name:\tx\nCapEff:\t{mask}\n")

    def scope(self, number: str) -> None:
        file = self._proc.folder / "sys/kernel/yama/ptrace_scope"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n")

    @property
    def proc(self) -> str:
        return str(self._proc.folder)

    def refusal(self) -> StackRefusal | None:
        return refusal(
            PID, proc=self.proc, permits=lambda pid: not self.is_refused or pid == os.getpid()
        )

    def refused(self) -> StackRefusal:
        found = self.refusal()
        assert found is not None
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "geteuid", lambda: ORDINARY_UID)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("container", raising=False)
    return Machine(tmp_path)


class TestAProcessThatMayBeRead:
    def test_has_no_refusal(self, machine: Machine) -> None:
        machine.is_refused = False

        assert machine.refusal() is None

    def test_may_have_an_environment_that_is_hidden(self, machine: Machine) -> None:
        machine.is_refused = False
        (machine.folder / f"proc/{PID}/environ").unlink()

        assert machine.refusal() is None


class TestAProcessThatIsNoProgram:
    def test_is_missing(self, machine: Machine) -> None:
        found = refusal(PID + 1, proc=machine.proc)

        assert found == StackRefusal(
            f"there is no process {PID + 1}, or it is hidden", has_ended=True
        )

    def test_is_a_zombie(self, machine: Machine) -> None:
        machine.is_refused = False
        machine.state("Z")

        assert machine.refused().has_ended
        assert "a zombie" in machine.refused().text

    def test_is_a_thread_of_the_kernel(self, machine: Machine) -> None:
        machine.is_refused = False
        machine.kernel_thread()

        assert machine.refused() == StackRefusal(
            f"process {PID} is a thread of the kernel, not a program"
        )


class TestAProcessThatOptsOut:
    @pytest.mark.parametrize(
        ("raw", "answer"),
        [
            (b"A=1\0GPUMON_NO_STACKS=1\0B=2\0", True),
            (b"GPUMON_NO_STACKS=yes", True),
            (b"GPUMON_NO_STACKS=0\0", False),
            (b"GPUMON_NO_STACKS=\0", False),
            (b"A=GPUMON_NO_STACKS=1\0", False),
            (b"XGPUMON_NO_STACKS=1\0", False),
            (b"A=1\0", False),
            (b"", None),
            (b"ray::IDLE\0\0\0\0", None),  # overwritten by a title
            (b"A=1\0" * (1 << 20), None),  # longer than is read
        ],
    )
    def test_is_recognised_by_its_environment(
        self, machine: Machine, raw: bytes, answer: bool | None
    ) -> None:
        machine.environ(raw)

        assert opts_out(PID, machine.proc) is answer

    def test_is_refused_though_the_kernel_permits_it(self, machine: Machine) -> None:
        machine.is_refused = False
        machine.environ(b"GPUMON_NO_STACKS=1\0")

        assert machine.refused() == StackRefusal(
            f"process {PID} does not want its stacks read (GPUMON_NO_STACKS is set)"
        )

    def test_is_unknown_where_its_environment_is_hidden(self, machine: Machine) -> None:
        assert opts_out(PID + 1, machine.proc) is None


class TestTheKernelsRefusal:
    def test_for_another_users_process_comes_with_a_sudo_line(self, machine: Machine) -> None:
        machine.belongs_to(0)

        assert machine.refused() == StackRefusal(
            f"process {PID} belongs to user {pwd.getpwuid(0).pw_name}", sudo_line(PID)
        )

    def test_for_a_user_without_a_name_has_its_number(self, machine: Machine) -> None:
        machine.belongs_to(4_000_123)

        assert machine.refused().text == f"process {PID} belongs to user 4000123"

    def test_under_ubuntus_default_names_the_command_that_needs_nothing(
        self, machine: Machine
    ) -> None:
        machine.scope("1")

        found = machine.refused()

        assert "processes that it started (kernel.yama.ptrace_scope is 1)" in found.text
        assert found.remedy is not None
        assert found.remedy.startswith(f"{sudo_line(PID)}; ")
        assert "`gpumon why -- COMMAND` or `gpumon run -- COMMAND`" in found.remedy

    def test_where_only_root_may_has_a_sudo_line(self, machine: Machine) -> None:
        machine.scope("2")

        assert machine.refused() == StackRefusal(
            "only root may read stacks on this machine (kernel.yama.ptrace_scope is 2)",
            sudo_line(PID),
        )

    def test_where_nothing_may_names_the_setting(self, machine: Machine) -> None:
        machine.scope("3")
        machine.capabilities(ALL)

        found = machine.refused()

        assert "no process read" in found.text
        assert found.remedy == "set kernel.yama.ptrace_scope to 1 in /etc/sysctl.d, and reboot"

    @pytest.mark.parametrize("uid", [0, ORDINARY_UID])
    def test_in_a_container_names_the_flags(
        self, machine: Machine, uid: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        (machine.folder / ".dockerenv").touch()

        found = machine.refused()

        assert found.text.startswith(f"this container may not read stacks of process {PID} (Docker")
        assert "docker run --cap-add SYS_PTRACE" in str(found.remedy)
        assert 'securityContext.capabilities.add: ["SYS_PTRACE"]' in str(found.remedy)

    def test_for_root_without_the_capability_names_it(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)

        assert "CAP_SYS_PTRACE is missing" in machine.refused().text

    def test_for_a_process_that_protects_itself_has_a_sudo_line(self, machine: Machine) -> None:
        assert machine.refused() == StackRefusal(
            f"process {PID} forbids other processes to read it", sudo_line(PID)
        )

    def test_in_spite_of_the_capability_has_no_remedy(self, machine: Machine) -> None:
        machine.capabilities(ALL)

        assert "even with CAP_SYS_PTRACE" in machine.refused().text
        assert machine.refused().remedy is None

    def test_of_the_call_itself_names_the_call(self, machine: Machine) -> None:
        found = refusal(PID, proc=machine.proc, permits=lambda _: False)

        assert found is not None
        assert "no process read another one's memory (process_vm_readv)" in found.text

    def test_of_a_process_that_ends_meanwhile_is_its_end(self, machine: Machine) -> None:
        def ends(pid: int) -> bool:
            if pid != os.getpid():
                machine.state("Z")
            return pid == os.getpid()

        found = refusal(PID, proc=machine.proc, permits=ends)

        assert found is not None
        assert found.has_ended


class TestTheScope:
    @pytest.mark.parametrize(("text", "scope"), [("0", 0), ("3", 3), ("", None), ("x", None)])
    def test_is_a_number(self, machine: Machine, text: str, scope: int | None) -> None:
        machine.scope(text)

        assert ptrace_scope(machine.proc) == scope

    def test_may_be_missing(self, machine: Machine) -> None:
        assert ptrace_scope(machine.proc) is None


class TestTheCapability:
    @pytest.mark.parametrize(
        ("mask", "has"), [(ALL, True), (NONE, False), ("80000", True), ("40000", False)]
    )
    def test_is_one_bit(self, machine: Machine, mask: str, has: bool) -> None:
        machine.capabilities(mask)

        assert has_capability(machine.proc) is has


class TestTheSudoLine:
    def test_has_the_whole_path_of_our_program(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

        assert sudo_line(PID) == f"sudo {tmp_path}/python -m gpumon why {PID}"
        (tmp_path / "gpumon").touch(0o755)
        assert sudo_line(PID) == f"sudo {tmp_path}/gpumon why {PID}"


AS_OTHER = f"""
import os, sys
from gpumon.sources.stacks.permission import kernel_permits, refusal
os.setgroups([]); os.setgid({OTHER_UID}); os.setuid({OTHER_UID})
pid = int(sys.argv[1])
print(kernel_permits(pid), refusal(pid).text)
"""
UNDUMPABLE = f"""
import ctypes, os
os.setgid({OTHER_UID}); os.setuid({OTHER_UID})
ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
print("here", flush=True)
input()
"""


class TestForReal:
    def test_our_own_process_and_children_may_be_read(self) -> None:
        with ending(subprocess.Popen(["/bin/sleep", "60"])) as child:
            assert kernel_permits(os.getpid())
            assert refusal(os.getpid()) is None
            assert refusal(child.pid) is None

    def test_a_process_that_ended_is_a_zombie_then_missing(self) -> None:
        with ending(subprocess.Popen(["/bin/true"])) as child:
            wait_until(lambda: (refusal(child.pid) or StackRefusal("")).has_ended)
            assert "a zombie" in getattr(refusal(child.pid), "text", "")
        assert "there is no process" in getattr(refusal(child.pid), "text", "")

    def test_a_child_opts_out(self) -> None:
        environ = {"GPUMON_NO_STACKS": "1"}
        with ending(subprocess.Popen(["/bin/sleep", "60"], env=environ)) as child:
            wait_until(lambda: opts_out(child.pid) is True)

    @as_root
    def test_another_users_process_is_refused_with_its_user(self) -> None:
        found = ran_python("-c", AS_OTHER, str(os.getpid())).stdout

        assert found.startswith("False ")
        owner = f"process {os.getpid()} belongs to user {pwd.getpwuid(os.geteuid()).pw_name}"
        container = f"this container may not read stacks of process {os.getpid()}"
        assert found.removeprefix("False ").startswith((owner, container))

    @as_root
    def test_a_process_that_cannot_be_dumped_is_refused(self) -> None:
        with ending(
            subprocess.Popen(
                [sys.executable, "-c", UNDUMPABLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()

            assert ran_python("-c", AS_OTHER, str(process.pid)).stdout.startswith("False ")
            assert permission.kernel_permits(process.pid)  # root may

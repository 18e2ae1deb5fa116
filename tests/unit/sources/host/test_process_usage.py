"""Tests of what GPU processes use of this machine."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys

import pytest

from gpumon.sources.host.process_usage import HostProcess, ProcessUsage
from tests.processes import ending, with_pids_of_the_host
from tests.waiting import until

SPINS = "while True: pass"
HAS_CHILD = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(100)'])"
)


def read(usage: ProcessUsage, *pids: int, tree: bool = False) -> dict[int, HostProcess]:
    return {process.pid: process for process in usage.read(pids, tree=tree)}


@with_pids_of_the_host
def test_a_process_has_its_user_program_cores_and_memory() -> None:
    usage = ProcessUsage()
    with subprocess.Popen([sys.executable, "-c", SPINS]) as child, ending(child):
        first = read(usage, child.pid)[child.pid]

        assert first.cpu_ratio is None
        assert first.user == getpass.getuser()
        assert first.command.startswith("python")
        assert until(lambda: (read(usage, child.pid)[child.pid].cpu_ratio or 0.0) > 0.05)
        assert (read(usage, child.pid)[child.pid].memory_bytes or 0) > 1 << 20


@with_pids_of_the_host
def test_children_follow_their_parent_in_the_tree() -> None:
    usage = ProcessUsage()
    with subprocess.Popen([sys.executable, "-c", HAS_CHILD]) as parent, ending(parent):
        assert until(lambda: len(read(usage, parent.pid, tree=True)) == 2)
        found = usage.read([parent.pid], tree=True)

        assert [process.depth for process in found] == [0, 1]
        assert found[0].pid == parent.pid
        assert [*read(usage, parent.pid)] == [parent.pid]
        subprocess.run(["kill", str(found[1].pid)], check=True)


def test_one_that_is_gone_is_left_out() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()

    assert ProcessUsage().read([child.pid, 2**22 + 7], tree=True) == []


def test_nothing_is_read_where_pids_are_those_of_another_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpumon.sources.host.process_usage.shows_all_pids", lambda proc: False)

    assert ProcessUsage().read([os.getpid()], tree=True) == []

"""Specification of `gpumon dstat`: which copies it writes and removes, and what scripts get.

What it says of this machine is in ``tests/golden``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders_dstat_hosts import DSTAT, Machine
from tests.command_line import Shell

BOTH = [".dool/dool_gpu.py", ".dstat/dstat_gpu.py"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return machine


class TestInstall:
    def test_writes_for_both_although_neither_is_there_and_uninstall_undoes_it(
        self, machine: Machine, gpumon: Shell
    ) -> None:
        assert gpumon("dstat", "install").code == 0
        assert machine.copies() == BOTH

        assert gpumon("dstat", "uninstall").code == 0
        assert machine.copies() == []

    def test_writes_the_one_where_the_other_cannot_be(
        self, machine: Machine, gpumon: Shell
    ) -> None:
        stranger = machine.stranger()
        mine = stranger.read_text()

        ended = gpumon("dstat", "install")

        assert ended.code == 1
        assert ended.is_refused_in_a_sentence
        assert stranger.read_text() == mine
        assert machine.copies() == BOTH

    def test_is_undone_but_for_a_strangers_file(self, machine: Machine, gpumon: Shell) -> None:
        machine.stranger()

        assert gpumon("dstat", "uninstall").code == 0
        assert machine.copies() == [".dstat/dstat_gpu.py"]


def test_where_tells_a_script_which_copy_is_loaded(machine: Machine, gpumon: Shell) -> None:
    machine.command("dstat", DSTAT)
    gpumon("dstat", "install")

    (host,) = gpumon("dstat", "where", "--json").document["hosts"]

    assert (host["flavour"], host["python_version"]) == ("dstat", [3, 11])
    assert host["loaded"] == f"{machine.home}/.dstat/dstat_gpu.py"
    assert host["copies"][0] == {"path": host["loaded"], "state": "current"}

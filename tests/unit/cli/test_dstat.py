"""Specification of `gpumon dstat`: what it writes, and what it says of this machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from gpumon.cli.dstat import DstatCommand
from gpumon.errors import GpumonError
from tests.unit.cli.test_dstat_hosts import DOOL, DSTAT, PCP, Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return machine


def gpumon_dstat(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command = DstatCommand()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def copies(machine: Machine) -> list[str]:
    return sorted(str(p.relative_to(machine.home)) for p in machine.home.rglob("*.py"))


class TestInstall:
    def test_writes_for_both_although_neither_is_there(
        self, machine: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert gpumon_dstat("install") == 0

        assert copies(machine) == [".dool/dool_gpu.py", ".dstat/dstat_gpu.py"]
        said = capsys.readouterr().out
        assert f"wrote    {machine.home}/.dstat/dstat_gpu.py\n" in said
        assert "Nothing on PATH loads the plugin yet" in said

    def test_says_what_to_type_next(
        self, machine: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = machine.command("dstat", DSTAT)

        gpumon_dstat("install")

        said = capsys.readouterr().out
        assert f"dstat    {path} is dstat under Python 3.11: `dstat -cdn --gpu 1`\n" in said
        assert "Nothing on PATH" not in said

    def test_says_where_dstat_is_really_pcp_dstat(
        self, machine: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (machine.bin / "dstat").symlink_to(machine.command("pcp-dstat", PCP))

        gpumon_dstat("install")

        said = capsys.readouterr().out
        assert "pcp-dstat is pcp-dstat: it does not load Python plugins" in said
        assert "`pip install dool`, then `dool -cdn --gpu 1`" in said

    def test_writes_the_one_where_the_other_cannot_be(self, machine: Machine) -> None:
        stranger = machine.home / ".dstat" / "dstat_gpu.py"
        stranger.parent.mkdir(parents=True)
        stranger.write_text("print('mine')\n", encoding="ascii")

        with pytest.raises(GpumonError, match=r"\.dstat/dstat_gpu\.py is not gpumon's"):
            gpumon_dstat("install")

        assert stranger.read_text(encoding="ascii") == "print('mine')\n"
        assert (machine.home / ".dool" / "dool_gpu.py").exists()


class TestUninstall:
    def test_undoes_install(self, machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
        gpumon_dstat("install")

        assert gpumon_dstat("uninstall") == 0

        assert copies(machine) == []
        assert f"removed  {machine.home}/.dool/dool_gpu.py\n" in capsys.readouterr().out

    def test_leaves_a_strangers_file_and_says_so(
        self, machine: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stranger = machine.home / ".dstat" / "dstat_gpu.py"
        stranger.parent.mkdir(parents=True)
        stranger.write_text("print('mine')\n", encoding="ascii")

        assert gpumon_dstat("uninstall") == 0

        assert copies(machine) == [".dstat/dstat_gpu.py"]
        assert f"left     {stranger}: not gpumon's\n" in capsys.readouterr().out

    def test_says_that_there_is_nothing_to_do(
        self, machine: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gpumon_dstat("uninstall")

        assert f"nothing  {machine.home}/.dstat/dstat_gpu.py\n" in capsys.readouterr().out


class TestWhere:
    def test_shows_which_copy_wins(
        self, machine: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        machine.command("dool", DOOL)
        gpumon_dstat("install")
        outdated = machine.home / ".local" / "share" / "dool" / "plugins" / "dool_gpu.py"
        outdated.parent.mkdir(parents=True)
        outdated.write_text("# gpumon-dstat-plugin: of old\n", encoding="ascii")
        capsys.readouterr()

        gpumon_dstat("where")

        said = capsys.readouterr().out
        assert f"         {machine.home}/.dool/dool_gpu.py: current  <- loaded\n" in said
        assert f"         {outdated}: outdated\n" in said

    def test_says_where_no_copy_is(
        self, machine: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        machine.command("dool", DOOL)

        gpumon_dstat("where")

        assert "so it has no --gpu yet: `gpumon dstat install`" in capsys.readouterr().out

    def test_tells_a_script_the_same(
        self, machine: Machine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        machine.command("dstat", DSTAT)
        gpumon_dstat("install")
        capsys.readouterr()

        gpumon_dstat("where", "--json")

        (host,) = json.loads(capsys.readouterr().out)["hosts"]
        assert (host["flavour"], host["python_version"]) == ("dstat", [3, 11])
        assert host["loaded"] == f"{machine.home}/.dstat/dstat_gpu.py"
        assert host["copies"][0] == {"path": host["loaded"], "state": "current"}

"""Tests of `gpumon dstat`: the copies it writes and removes, and the hosts it identifies.

Its messages are in ``tests/golden``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon import __version__
from gpumon.cli.dstat_hosts import (
    CopyState,
    Flavour,
    examine,
    find_hosts,
    identify,
    put_copy,
    remove_copy,
)
from gpumon.errors import GpumonError
from tests.builders.dstat import DOOL, DSTAT, PCP, PLUGIN, Machine
from tests.command_line import Shell

ALL = [
    ".dool/dool_gpu.py", ".dool/dool_gpu_stall.py", ".dstat/dstat_gpu.py",
    ".dstat/dstat_gpu_stall.py",
]  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return machine


class TestInstall:
    def test_writes_each_option_for_dstat_and_dool_and_uninstall_removes_them(
        self, machine: Machine, gpumon: Shell
    ) -> None:
        assert gpumon("dstat", "install").code == 0
        assert machine.copies() == ALL

        assert gpumon("dstat", "uninstall").code == 0
        assert machine.copies() == []

    def test_does_not_change_a_foreign_file(self, machine: Machine, gpumon: Shell) -> None:
        foreign = machine.stranger()
        content = foreign.read_text()

        assert gpumon("dstat", "install").is_refused_in_a_sentence
        assert machine.copies() == ALL
        assert gpumon("dstat", "uninstall").code == 0
        assert foreign.read_text() == content
        assert machine.copies() == [".dstat/dstat_gpu.py"]


def test_where_lists_the_loaded_copy_as_json(machine: Machine, gpumon: Shell) -> None:
    machine.command("dstat", DSTAT)
    gpumon("dstat", "install")

    (host,) = gpumon("dstat", "where", "--json").document["hosts"]

    assert (host["flavour"], host["python_version"]) == ("dstat", [3, 11])
    assert host["loaded"] == f"{machine.home}/.dstat/dstat_gpu.py"
    assert [copy for copy in host["copies"] if copy["loaded"]] == [
        {
            "option": option,
            "path": f"{machine.home}/.dstat/{name}.py",
            "state": "current",
            "loaded": True,
        }
        for option, name in (("--gpu", "dstat_gpu"), ("--gpu-stall", "dstat_gpu_stall"))
    ]


class TestAHost:
    @pytest.mark.parametrize(
        ("name", "text", "python", "flavour", "works"),
        [
            ("dstat", DSTAT, "python3.11", Flavour.DSTAT, True),
            ("dstat", DSTAT, "python3.12", Flavour.DSTAT, False),  # which has no imp
            ("dool", DOOL, "python3.11", Flavour.DOOL, True),
            ("dool", DOOL, "python3.13", Flavour.DOOL, True),
            ("dstat", PCP, "python3.11", Flavour.PCP_DSTAT, False),
            ("dstat", "\x7fELF, or something else", "python3.11", Flavour.UNKNOWN, False),
        ],
        ids=["dstat", "dstat on a new Python", "dool", "dool on a new Python", "pcp-dstat", "else"],
    )
    def test_is_identified_by_its_text_with_advice_if_it_loads_no_plugin(
        self, machine: Machine, name: str, text: str, python: str, flavour: Flavour, works: bool
    ) -> None:
        host = identify(machine.command(name, text, python), machine.environ)

        assert host.flavour is flavour
        assert ("`dool -cdn --gpu 1`" in (host.obstacle or "")) is not works
        assert (host.obstacle is None) is works

    def test_may_be_started_by_env(self, machine: Machine) -> None:
        path = machine.command("dstat", DSTAT.replace("{python}", "/usr/bin/env python3.11"))

        assert identify(path, machine.environ).python == machine.bin / "python3.11"

    def test_may_be_pcp_dstat_with_the_name_dstat(self, machine: Machine) -> None:
        path = machine.pcp_dstat()

        (host,) = find_hosts(machine.environ)

        assert (host.command, host.target) == (path, machine.bin / "pcp-dstat")
        assert (host.flavour, host.plugin_folders) == (Flavour.PCP_DSTAT, ())


class TestThePluginFolders:
    def test_start_with_the_home_folder_and_include_the_package(self, machine: Machine) -> None:
        package = machine.bin.parent / "lib" / "python3.11" / "site-packages" / "dool" / "plugins"
        package.mkdir(parents=True)

        dstat = identify(machine.command("dstat", DSTAT), machine.environ)
        dool = identify(machine.command("dool", DOOL), machine.environ)

        assert dstat.plugin_folders[:2] == (machine.home / ".dstat", machine.bin / "plugins")
        assert dstat.plugin_folders[2:] == (
            Path("/usr/share/dstat"),
            Path("/usr/local/share/dstat"),
        )
        data = machine.home / ".local" / "share" / "dool" / "plugins"
        assert dool.plugin_folders[:3] == (machine.home / ".dool", data, package)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / ".dstat" / "dstat_gpu.py"
    place.parent.mkdir()
    return place


class TestACopy:
    def test_is_the_shipped_plugin_with_a_stamp_in_its_first_line(self, place: Path) -> None:
        put_copy(place)

        stamp, body = place.read_text(encoding="ascii").split("\n", 1)
        assert body == PLUGIN.read_text(encoding="ascii").split("\n", 1)[1]
        assert f"gpumon {__version__}" in stamp
        assert [path.name for path in place.parent.iterdir()] == ["dstat_gpu.py"]

    @pytest.mark.parametrize(
        ("make", "was"),
        [
            (lambda place: place.parent.rmdir(), CopyState.ABSENT),
            (lambda place: place.symlink_to(PLUGIN), CopyState.CURRENT),
            (lambda place: place.symlink_to("gone.py"), CopyState.DANGLING),
            (lambda place: place.write_bytes(PLUGIN.read_bytes()), CopyState.CURRENT),
            (lambda place: place.write_bytes(PLUGIN.read_bytes() + b"#"), CopyState.OUTDATED),
        ],
        ids=["nothing", "link to the shipped file", "broken link", "manual copy", "older version"],
    )  # fmt: skip
    def test_replaces(self, place: Path, make: Callable[[Path], object], was: CopyState) -> None:
        shipped = PLUGIN.read_bytes()
        make(place)
        assert examine(place) is was

        put_copy(place)

        assert examine(place) is CopyState.CURRENT
        assert not place.is_symlink()
        assert PLUGIN.read_bytes() == shipped

    @pytest.mark.parametrize(
        "content", [b"print('mine')\n", b"", b"\xff\xfe", b"# " + b"x" * (2 << 20)]
    )
    def test_neither_replaces_nor_removes_a_foreign_file(self, place: Path, content: bytes) -> None:
        place.write_bytes(content)

        with pytest.raises(GpumonError):
            put_copy(place)
        assert remove_copy(place) is CopyState.FOREIGN

        assert place.read_bytes() == content

    def test_names_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        place = tmp_path / "file" / "dstat_gpu.py"
        place.parent.touch()

        with pytest.raises(GpumonError, match=f"^[^\n]* {place}: [^\n]*$") as caught:
            put_copy(place)

        assert caught.value.exit_code == 1

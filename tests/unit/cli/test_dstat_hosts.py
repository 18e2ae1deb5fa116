"""Specification of who is who: dstat, dool and pcp-dstat are told apart by reading files only."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.cli.dstat_hosts import Flavour, find_hosts, identify
from tests.builders_dstat_hosts import DOOL, DSTAT, PCP, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


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
    def test_is_known_by_its_text(
        self, machine: Machine, name: str, text: str, python: str, flavour: Flavour, works: bool
    ) -> None:
        host = identify(machine.command(name, text, python), machine.environ)

        assert host.flavour is flavour
        assert (host.obstacle is None) is works

    @pytest.mark.parametrize(("text", "python"), [(DSTAT, "python3.12"), (PCP, "python3.11")])
    def test_that_loads_no_plugin_names_what_works_instead(
        self, machine: Machine, text: str, python: str
    ) -> None:
        host = identify(machine.command("dstat", text, python), machine.environ)

        assert "pip install dool" in (host.obstacle or "")

    def test_is_found_on_the_path_with_the_python_that_it_runs_under(
        self, machine: Machine
    ) -> None:
        assert find_hosts(machine.environ) == ()
        machine.command("dstat", DSTAT)

        (host,) = find_hosts(machine.environ)

        assert (host.flavour, host.python_version) == (Flavour.DSTAT, (3, 11))

    def test_may_be_started_by_env(self, machine: Machine) -> None:
        path = machine.command("dstat", DSTAT.replace("{python}", "/usr/bin/env python3.11"))

        assert identify(path, machine.environ).python == machine.bin / "python3.11"

    def test_may_be_pcp_dstat_behind_the_name_dstat(self, machine: Machine) -> None:
        path = machine.pcp_dstat()

        (host,) = find_hosts(machine.environ)

        assert (host.command, host.target) == (path, machine.bin / "pcp-dstat")
        assert (host.flavour, host.plugin_paths) == (Flavour.PCP_DSTAT, ())


class TestWherePluginsAreLookedFor:
    def test_by_dstat_is_the_home_folder_first(self, machine: Machine) -> None:
        host = identify(machine.command("dstat", DSTAT), machine.environ)

        assert host.plugin_paths == (
            machine.home / ".dstat" / "dstat_gpu.py",
            machine.bin / "plugins" / "dstat_gpu.py",
            Path("/usr/share/dstat/dstat_gpu.py"),
            Path("/usr/local/share/dstat/dstat_gpu.py"),
        )

    def test_by_dool_is_its_own_package_too(self, machine: Machine) -> None:
        package = machine.bin.parent / "lib" / "python3.11" / "site-packages" / "dool" / "plugins"
        package.mkdir(parents=True)

        host = identify(machine.command("dool", DOOL), machine.environ)

        assert host.plugin_paths == (
            machine.home / ".dool" / "dool_gpu.py",
            machine.home / ".local" / "share" / "dool" / "plugins" / "dool_gpu.py",
            package / "dool_gpu.py",
            Path("/usr/share/dool/dool_gpu.py"),
            Path("/usr/local/share/dool/dool_gpu.py"),
        )

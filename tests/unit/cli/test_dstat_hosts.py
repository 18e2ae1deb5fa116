"""Specification of who is who: dstat, dool and pcp-dstat are told apart by reading files only."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.cli.dstat_hosts import Flavour, find_hosts, identify

DSTAT = "#!{python}\n### Dstat\npluginpath = [\n    os.path.expanduser('~/.dstat/'),\n]\n"
DOOL = "#!{python}\nimport sys\nfrom dool import __main__\nsys.exit(__main__.__main())\n"
PCP = "#!/usr/bin/env pmpython\n# pcp-dstat\nfrom pcp import pmconfig\n"


class Machine:
    """A made-up machine under one folder, with a PATH of one folder."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.home = root / "home"
        self.environ = {"PATH": str(self.bin), "HOME": str(self.home)}

    def command(self, name: str, text: str, python: str = "python3.11") -> Path:
        interpreter = self.bin / python
        interpreter.touch(mode=0o755)
        path = self.bin / name
        path.write_text(text.format(python=interpreter), encoding="utf-8")
        path.chmod(0o755)
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestDstat:
    def test_is_known_with_the_python_that_it_runs_under(self, machine: Machine) -> None:
        machine.command("dstat", DSTAT)

        (host,) = find_hosts(machine.environ)

        assert (host.flavour, host.python_version) == (Flavour.DSTAT, (3, 11))
        assert host.obstacle is None

    def test_looks_into_the_home_folder_first(self, machine: Machine) -> None:
        host = identify(machine.command("dstat", DSTAT), machine.environ)

        assert host.plugin_paths == (
            machine.home / ".dstat" / "dstat_gpu.py",
            machine.bin / "plugins" / "dstat_gpu.py",
            Path("/usr/share/dstat/dstat_gpu.py"),
            Path("/usr/local/share/dstat/dstat_gpu.py"),
        )

    def test_loads_no_plugin_under_a_python_without_imp(self, machine: Machine) -> None:
        host = identify(machine.command("dstat", DSTAT, "python3.12"), machine.environ)

        assert host.obstacle is not None
        assert "cannot load any plugin under Python 3.12" in host.obstacle
        assert "pip install dool" in host.obstacle

    def test_may_be_started_by_env(self, machine: Machine) -> None:
        path = machine.command("dstat", DSTAT.replace("{python}", "/usr/bin/env python3.11"))

        assert identify(path, machine.environ).python == machine.bin / "python3.11"


class TestDool:
    def test_is_known_by_what_pip_left_in_its_place(self, machine: Machine) -> None:
        host = identify(machine.command("dool", DOOL), machine.environ)

        assert host.flavour is Flavour.DOOL
        assert host.obstacle is None

    def test_looks_into_its_own_package_too(self, machine: Machine) -> None:
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

    def test_runs_under_any_python(self, machine: Machine) -> None:
        host = identify(machine.command("dool", DOOL, "python3.13"), machine.environ)

        assert host.python_version == (3, 13)
        assert host.obstacle is None


class TestPcpDstat:
    def test_is_found_behind_the_name_dstat(self, machine: Machine) -> None:
        real = machine.command("pcp-dstat", PCP)
        (machine.bin / "dstat").symlink_to(real)

        (host,) = find_hosts(machine.environ)

        assert host.command == machine.bin / "dstat"
        assert (host.target, host.flavour) == (real, Flavour.PCP_DSTAT)

    def test_is_known_by_its_text_under_another_name(self, machine: Machine) -> None:
        path = machine.command("dstat", PCP)

        assert identify(path, machine.environ).flavour is Flavour.PCP_DSTAT

    def test_says_plainly_what_works_instead(self, machine: Machine) -> None:
        host = identify(machine.command("dstat", PCP), machine.environ)

        assert host.obstacle is not None
        assert host.obstacle.startswith("it does not load Python plugins; `pip install dool`")
        assert host.plugin_paths == ()


class TestAnythingElse:
    def test_of_the_name_is_not_taken_for_dstat(self, machine: Machine) -> None:
        path = machine.command("dstat", "\x7fELF, or something else")

        assert identify(path, machine.environ).flavour is Flavour.UNKNOWN

    def test_an_empty_machine_has_none(self, machine: Machine) -> None:
        assert find_hosts(machine.environ) == ()

"""Tests of the doctor's finding on stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.cli.doctor import stacks
from gpumon.cli.doctor.stacks import StackAccess, read_stack_access, stack_finding
from gpumon.sources.stacks.permission import IN_CONTAINER, sudo_line

NOT_PRIVILEGED = StackAccess("0.4.3")


def found(access: StackAccess, *, in_container: bool = False) -> tuple[str, str, str | None]:
    finding = stack_finding(access, in_container=in_container)
    assert finding.name == "stacks"
    return finding.status, finding.detail, finding.fix


class TestStacks:
    def test_of_all_users_are_read_with_the_capability(self) -> None:
        access = NOT_PRIVILEGED._replace(is_privileged=True, scope=2)

        assert found(access) == ("ok", "py-spy 0.4.3 can read those of all users", None)

    def test_of_others_need_a_command_without_it(self) -> None:
        status, detail, fix = found(NOT_PRIVILEGED)

        assert (status, fix) == ("ok", None)
        assert detail == f"py-spy 0.4.3 can read those of this user; of others: {sudo_line('PID')}"

    @pytest.mark.parametrize(("version", "words"), [(None, "not installed"), ("", "does not run")])
    def test_without_py_spy_come_with_the_command_that_installs_it(
        self, version: str | None, words: str
    ) -> None:
        status, detail, fix = found(StackAccess(version))

        assert status == "missing"
        assert words in detail
        assert "-m pip install 'py-spy>=0.4,<0.5'" in str(fix)

    @pytest.mark.parametrize("version", ["0.3.14", "0.5.0", "1.0", "0.40.1"])
    def test_by_another_py_spy_are_uncertain(self, version: str) -> None:
        status, detail, _ = found(NOT_PRIVILEGED._replace(version=version))

        assert (status, detail) == ("missing", f"py-spy {version}: gpumon knows what 0.4 writes")

    def test_under_ubuntus_default_need_no_permission_of_a_child(self) -> None:
        status, detail, fix = found(NOT_PRIVILEGED._replace(scope=1))

        assert status == "missing"
        assert "of processes that gpumon did not start only root may" in detail
        assert str(fix).startswith(f"{sudo_line('PID')}; a script that `gpumon why -- COMMAND`")

    def test_of_root_only_have_a_sudo_line(self) -> None:
        status, detail, fix = found(NOT_PRIVILEGED._replace(scope=2))

        assert (status, fix) == ("missing", sudo_line("PID"))
        assert "kernel.yama.ptrace_scope is 2" in detail

    def test_that_nothing_may_read_name_the_setting(self) -> None:
        status, _, fix = found(NOT_PRIVILEGED._replace(scope=3, is_privileged=True))

        assert status == "missing"
        assert "kernel.yama.ptrace_scope to 1" in str(fix)

    @pytest.mark.parametrize("scope", [1, 2])
    def test_in_a_container_name_its_flags(self, scope: int) -> None:
        _, _, fix = found(NOT_PRIVILEGED._replace(scope=scope), in_container=True)

        assert str(fix).startswith(IN_CONTAINER)

    def test_where_the_call_is_blocked_name_the_call(self) -> None:
        status, detail, _ = found(NOT_PRIVILEGED._replace(is_possible=False, is_privileged=True))

        assert status == "missing"
        assert "process_vm_readv" in detail


class TestTheAccess:
    def test_is_read_from_this_machine(self) -> None:
        access = read_stack_access()

        assert access.is_possible
        assert access.version is None or access.version.startswith("0.4.")

    def test_without_py_spy_has_no_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stacks, "find_py_spy", lambda: None)

        assert read_stack_access().version is None

    def test_of_a_py_spy_that_does_not_run_has_an_empty_version(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(stacks, "find_py_spy", lambda: tmp_path / "none")

        assert read_stack_access().version == ""

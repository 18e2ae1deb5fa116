"""Specification of the runtime folders, and which of them may be trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpumon.core.ring_format.runtime_paths import (
    PHASES,
    SYSTEM_FOLDER,
    daemon_folders,
    distrust,
    reader_patterns,
    writer_folders,
)

FOLDER = Path("/tmp/gpumon-7")
SESSION = {"XDG_RUNTIME_DIR": "/run/user/7"}


class TestAWriter:
    def test_uses_only_the_folder_that_the_user_named(self) -> None:
        environ = {**SESSION, "GPUMON_RUNTIME_DIR": "/data/rings"}

        assert writer_folders(environ, 7, system_folder_has_phases=True) == (Path("/data/rings"),)

    def test_prefers_the_folder_of_a_daemon_of_the_superuser(self) -> None:
        found = writer_folders(SESSION, 7, system_folder_has_phases=True)

        assert [str(f) for f in found] == ["/run/gpumon", "/run/user/7/gpumon", "/tmp/gpumon-7"]

    def test_ignores_an_empty_or_relative_variable(self) -> None:
        environ = {"GPUMON_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": "here"}

        assert writer_folders(environ, 7, system_folder_has_phases=False) == (FOLDER,)


class TestADaemon:
    def test_uses_the_system_folder_if_run_by_the_superuser(self) -> None:
        assert daemon_folders(SESSION, 0) == (Path("/run/gpumon"),)


class TestAReader:
    def test_reads_the_session_if_no_variable_names_it(self) -> None:
        """A daemon that cron started, and a run of the same user in a terminal."""
        assert "/run/user/7/gpumon" in reader_patterns({}, 7)
        assert reader_patterns(SESSION, 7) == reader_patterns({}, 7)

    def test_reads_the_folders_of_all_users_only_for_the_superuser(self) -> None:
        assert any("*" in pattern for pattern in reader_patterns({}, 0))
        assert not any("*" in pattern for pattern in reader_patterns({}, 7))


def folder(mode: int, owner_uid: int = 7, kind: int = stat.S_IFDIR) -> os.stat_result:
    return os.stat_result((kind | mode, 0, 0, 1, owner_uid, 0, 0, 0, 0, 0))


class TestATrustedFolder:
    @pytest.mark.parametrize(
        "facts", [folder(0o700), folder(0o755), folder(0o1777, 0), folder(0o755, 0)]
    )
    def test_is_writable_only_by_its_owner_or_the_superuser(self, facts: os.stat_result) -> None:
        assert distrust(FOLDER, facts, uid=7, explicit=False) is None

    def test_may_be_another_users_if_the_user_named_it(self) -> None:
        assert distrust(FOLDER, folder(0o1777, 8), uid=7, explicit=True) is None

    @pytest.mark.parametrize("path", [SYSTEM_FOLDER, SYSTEM_FOLDER / PHASES])
    def test_may_be_made_by_the_service_of_this_machine(self, path: Path) -> None:
        of_the_service = folder(0o1777, owner_uid=990)

        assert distrust(path, of_the_service, uid=7, explicit=False) is None


class TestAFolder:
    @pytest.mark.parametrize(
        ("facts", "explicit", "reason"),
        [
            (folder(0o777, kind=stat.S_IFLNK), False, "link"),
            (folder(0o777, kind=stat.S_IFLNK), True, "link"),
            (folder(0o600, kind=stat.S_IFREG), False, "not a folder"),
            (folder(0o700, owner_uid=8), False, "user 8"),
            (folder(0o777), False, "others"),
            (folder(0o770), False, "others"),
        ],
    )
    def test_is_refused_with_the_reason(
        self, facts: os.stat_result, explicit: bool, reason: str
    ) -> None:
        assert reason in (distrust(FOLDER, facts, uid=7, explicit=explicit) or "")

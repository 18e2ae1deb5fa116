"""The folder in which a run creates its ring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.errors import RingError
from trainer_hooks.ring.mapped_file import find_ring_folder

UID = os.geteuid()


def environ(folder: Path) -> dict[str, str]:
    return {"GPUMON_RUNTIME_DIR": str(folder)}


class TestTheFolder:
    def test_is_made_private_where_there_is_none(self, tmp_path: Path) -> None:
        found = find_ring_folder(environ(tmp_path / "a"), UID)

        assert found.path == tmp_path / "a" / "phases"
        assert found.ring_mode == 0o600
        assert found.path.stat().st_mode & 0o777 == 0o700

    def test_makes_rings_readable_where_several_users_share_it(self, tmp_path: Path) -> None:
        shared = tmp_path / "phases"
        shared.mkdir()
        shared.chmod(0o1777)

        assert find_ring_folder(environ(tmp_path), UID).ring_mode == 0o644

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("link", "link is a link"),
            ("file", "file is not a folder"),
            ("open", "open can be written by others"),
            ("", "phases is a link"),
        ],
    )
    def test_is_refused_with_the_reason(self, tmp_path: Path, name: str, reason: str) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        (tmp_path / "file").write_text("")
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)
        (tmp_path / "phases").symlink_to(tmp_path / "open")

        with pytest.raises(RingError, match=f"{tmp_path}/{reason}"):
            find_ring_folder(environ(tmp_path / name), UID)

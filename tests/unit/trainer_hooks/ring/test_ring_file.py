"""Specification of where a training puts its ring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.errors import RingError
from trainer_hooks.ring.ring_file import find_ring_folder

UID = os.geteuid()


def said(folder: Path) -> dict[str, str]:
    return {"GPUMON_RUNTIME_DIR": str(folder)}


class TestTheFolder:
    def test_is_made_private_where_there_is_none(self, tmp_path: Path) -> None:
        found = find_ring_folder(said(tmp_path / "a"), UID)

        assert found.path == tmp_path / "a" / "phases"
        assert found.ring_mode == 0o600
        assert found.path.stat().st_mode & 0o777 == 0o700

    def test_makes_rings_readable_where_several_users_share_it(self, tmp_path: Path) -> None:
        shared = tmp_path / "phases"
        shared.mkdir()
        shared.chmod(0o1777)

        assert find_ring_folder(said(tmp_path), UID).ring_mode == 0o644

    @pytest.mark.parametrize("name", ["link", "file", "open"])
    def test_is_refused_with_the_reason(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        (tmp_path / "file").write_text("")
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)

        with pytest.raises(RingError, match=str(tmp_path / name)):
            find_ring_folder(said(tmp_path / name), UID)

    def test_is_said_to_be_none_where_a_file_has_its_name(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")

        with pytest.raises(RingError, match=f"^{tmp_path / 'file'} is"):
            find_ring_folder(said(tmp_path / "file"), UID)

    def test_is_refused_where_phases_is_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "phases").symlink_to(tmp_path / "elsewhere")

        with pytest.raises(RingError, match="link"):
            find_ring_folder(said(tmp_path), UID)

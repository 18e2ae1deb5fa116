"""Tests of files that are written completely or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gpumon.errors import UnwritableFileError
from gpumon.outlets.atomic_write import write_whole


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestAFile:
    def test_has_its_content_and_no_temporary_file_stays(self, tmp_path: Path) -> None:
        write_whole(str(tmp_path / "a.svg"), b"new")

        assert (tmp_path / "a.svg").read_bytes() == b"new"
        assert names_in(tmp_path) == ["a.svg"]

    def test_replaces_an_older_one_and_keeps_its_mode(self, tmp_path: Path) -> None:
        path = tmp_path / "a.svg"
        path.write_bytes(b"old")
        path.chmod(0o640)

        write_whole(str(path), b"new")

        assert path.read_bytes() == b"new"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_is_written_where_a_link_points(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "real")

        write_whole(str(tmp_path / "link"), b"new")

        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes() == b"new"

    def test_that_is_a_device_stays_one(self) -> None:
        write_whole("/dev/null", b"new")

        assert Path("/dev/null").is_char_device()


class TestAFailure:
    @pytest.mark.parametrize("name", ["missing/a.svg", "", "a" * 300, "a\0b", "loop"])
    def test_has_a_message_of_one_line(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to(tmp_path / "loop")

        with pytest.raises(UnwritableFileError) as raised:
            write_whole(f"{tmp_path}/{name}", b"new")

        assert str(raised.value).startswith(f"{tmp_path}/{name}: ")
        assert "\n" not in str(raised.value)
        assert names_in(tmp_path) == ["loop"]

    def test_leaves_the_older_file_unchanged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "a.svg"
        path.write_bytes(b"old")

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(UnwritableFileError, match="No space"):
            write_whole(str(path), b"new")

        assert path.read_bytes() == b"old"
        assert names_in(tmp_path) == ["a.svg"]

"""Specification of the plugin's copies: ours are renewed and removed, others' never touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon import __version__
from gpumon.cli.dstat_hosts import CopyState, examine, put_copy, remove_copy, shipped_text
from gpumon.errors import GpumonError
from tests.builders_dstat import PLUGIN


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ".dstat" / "dstat_gpu.py"


class TestACopy:
    def test_is_the_shipped_plugin_with_a_stamp_as_its_first_line(self, place: Path) -> None:
        put_copy(place)

        stamp, body = place.read_text(encoding="ascii").split("\n", 1)
        assert body == PLUGIN.read_text(encoding="ascii").split("\n", 1)[1]
        assert f"copied by gpumon {__version__}" in stamp

    def test_is_a_file_of_its_own_also_where_a_link_was(self, place: Path) -> None:
        place.parent.mkdir()
        place.symlink_to(PLUGIN)

        put_copy(place)

        assert not place.is_symlink()
        assert PLUGIN.read_text(encoding="ascii") == shipped_text()

    def test_replaces_a_link_to_nothing(self, place: Path) -> None:
        place.parent.mkdir()
        place.symlink_to("gone.py")
        assert examine(place) is CopyState.DANGLING

        put_copy(place)

        assert examine(place) is CopyState.CURRENT

    def test_of_an_older_version_is_outdated_until_it_is_copied_again(self, place: Path) -> None:
        put_copy(place)
        place.write_text(place.read_text(encoding="ascii") + "# older\n", encoding="ascii")
        assert examine(place) is CopyState.OUTDATED

        put_copy(place)

        assert examine(place) is CopyState.CURRENT

    def test_leaves_no_unfinished_file_behind(self, place: Path) -> None:
        put_copy(place)

        assert [path.name for path in place.parent.iterdir()] == ["dstat_gpu.py"]

    def test_made_by_hand_from_a_checkout_is_ours(self, place: Path) -> None:
        place.parent.mkdir()
        place.write_bytes(PLUGIN.read_bytes())

        assert examine(place) is CopyState.CURRENT


class TestRemoving:
    def test_removes_what_was_copied(self, place: Path) -> None:
        put_copy(place)

        assert remove_copy(place).is_ours
        assert examine(place) is CopyState.ABSENT

    def test_finds_nothing_the_second_time(self, place: Path) -> None:
        assert remove_copy(place) is CopyState.ABSENT


class TestSomebodyElsesFile:
    @pytest.fixture(params=[b"print('mine')\n", b"", b"\xff\xfe", b"# " + b"x" * (2 << 20)])
    def stranger(self, place: Path, request: pytest.FixtureRequest) -> bytes:
        place.parent.mkdir()
        place.write_bytes(request.param)
        return bytes(request.param)

    def test_is_not_overwritten(self, place: Path, stranger: bytes) -> None:
        with pytest.raises(GpumonError, match="is not gpumon's and was left alone"):
            put_copy(place)

        assert place.read_bytes() == stranger

    def test_is_not_removed(self, place: Path, stranger: bytes) -> None:
        assert remove_copy(place) is CopyState.FOREIGN
        assert place.read_bytes() == stranger


class TestAFolderThatCannotBeWritten:
    def test_is_named_in_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / ".dstat").write_text("a file, not a folder", encoding="ascii")
        place = tmp_path / ".dstat" / "dstat_gpu.py"

        with pytest.raises(GpumonError, match=f"cannot write {place}: ") as caught:
            put_copy(place)

        assert caught.value.exit_code == 1
        assert "\n" not in str(caught.value)

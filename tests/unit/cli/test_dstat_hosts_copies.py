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
    place = tmp_path / ".dstat" / "dstat_gpu.py"
    place.parent.mkdir()
    return place


class TestACopy:
    def test_is_the_shipped_plugin_with_a_stamp_as_its_first_line(self, place: Path) -> None:
        put_copy(place)

        stamp, body = place.read_text(encoding="ascii").split("\n", 1)
        assert body == PLUGIN.read_text(encoding="ascii").split("\n", 1)[1]
        assert f"gpumon {__version__}" in stamp
        assert [path.name for path in place.parent.iterdir()] == ["dstat_gpu.py"]

    def test_makes_its_folder(self, tmp_path: Path) -> None:
        put_copy(tmp_path / "new" / "dstat_gpu.py")

        assert examine(tmp_path / "new" / "dstat_gpu.py") is CopyState.CURRENT

    def test_is_a_file_of_its_own_also_where_a_link_was(self, place: Path) -> None:
        place.symlink_to(PLUGIN)

        put_copy(place)

        assert not place.is_symlink()
        assert PLUGIN.read_text(encoding="ascii") == shipped_text()

    def test_replaces_a_link_to_nothing(self, place: Path) -> None:
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

    def test_made_by_hand_from_a_checkout_is_ours(self, place: Path) -> None:
        place.write_bytes(PLUGIN.read_bytes())

        assert examine(place) is CopyState.CURRENT

    def test_is_removed_once(self, place: Path) -> None:
        put_copy(place)

        assert remove_copy(place).is_ours
        assert examine(place) is CopyState.ABSENT
        assert remove_copy(place) is CopyState.ABSENT


@pytest.mark.parametrize(
    "content", [b"print('mine')\n", b"", b"\xff\xfe", b"# " + b"x" * (2 << 20)]
)
def test_somebody_elses_file_is_neither_overwritten_nor_removed(
    place: Path, content: bytes
) -> None:
    place.write_bytes(content)

    with pytest.raises(GpumonError):
        put_copy(place)
    assert remove_copy(place) is CopyState.FOREIGN

    assert place.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".dstat").write_text("a file, not a folder", encoding="ascii")
    place = tmp_path / ".dstat" / "dstat_gpu.py"

    with pytest.raises(GpumonError, match=f" {place}: ") as caught:
        put_copy(place)

    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)

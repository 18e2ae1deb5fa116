"""The table of public logs: made of what is in the folder, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders_logs import smi_log
from tests.truth import measured_page
from tests.truth.public_logs import PUBLISHED, main, table

STARVING = [96] * 5 + [0] * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / PUBLISHED[1].file).write_text(smi_log(STARVING * 20))
    return tmp_path


class TestTheTable:
    def test_has_a_row_for_each_log_that_is_there(self, folder: Path) -> None:
        rows = [line for line in table(folder).splitlines() if PUBLISHED[1].place in line]

        assert len(rows) == 1
        assert "| starvation suspected | yes | no | yes | yes |" in rows[0]

    def test_counts_how_often_the_owner_agrees(self, folder: Path) -> None:
        assert table(folder).endswith("Agrees with the owner in 0 of 1.")

    def test_of_a_folder_without_any_is_a_sentence(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([str(tmp_path)]) == 1
        assert capsys.readouterr().err == f"{tmp_path}: has none of the published logs\n"


class TestThePage:
    @pytest.fixture
    def page(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        page = tmp_path / "page.md"
        monkeypatch.setattr(measured_page, "PAGE", page)
        return page

    def test_keeps_all_that_is_not_between_the_marks(self, page: Path) -> None:
        page.write_text("a\n<!-- measured: x -->\nold\n<!-- /measured: x -->\nb\n")

        measured_page.put("x", "new")

        assert page.read_text() == "a\n<!-- measured: x -->\nnew\n<!-- /measured: x -->\nb\n"

    def test_without_a_place_for_it_is_left_alone(self, page: Path) -> None:
        page.write_text("a\n")

        with pytest.raises(ValueError, match="has no place for 'x'"):
            measured_page.put("x", "new")
        assert page.read_text() == "a\n"

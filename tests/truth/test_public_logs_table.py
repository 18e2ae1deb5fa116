"""The table of public logs: made of what is in the folder, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.core.verdict import VerdictName
from tests.builders.cycles import late_waves, on_and_off
from tests.builders.logs import smi_log
from tests.truth import measured_page
from tests.truth.public_logs import PUBLISHED, main, table

STARVING = [round(96 * ratio) for ratio in on_and_off(late_waves(60))]
_SUSPECTED = VerdictName.STARVATION_SUSPECTED.value.replace("_", " ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / PUBLISHED[1].file).write_text(smi_log(STARVING))
    return tmp_path


class TestTheTable:
    def test_has_a_row_for_each_log_that_is_there(self, folder: Path) -> None:
        rows = [line for line in table(folder).splitlines() if PUBLISHED[1].place in line]

        (cells,) = ([cell.strip() for cell in row.split("|")] for row in rows)
        assert cells[4].startswith(f"{_SUSPECTED} (late input: ")
        assert cells[5:9] == ["yes", "no", "yes", "yes"]

    def test_counts_how_often_the_owner_agrees(self, folder: Path) -> None:
        assert "0 of 1" in table(folder).splitlines()[-1]

    def test_of_a_folder_without_any_is_none(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([str(tmp_path)]) == 1
        assert str(tmp_path) in capsys.readouterr().err


class TestThePage:
    @pytest.fixture
    def page(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        page = tmp_path / "page.md"
        monkeypatch.setattr(measured_page, "PAGE", page)
        return page

    def test_keeps_all_that_is_not_between_the_marks(self, page: Path) -> None:
        around = "a\n<!-- measured: x -->\n{}\n<!-- /measured: x -->\nb\n"
        page.write_text(around.format("old"))

        measured_page.put("x", "new")

        assert page.read_text() == around.format("new")

    def test_without_a_place_for_it_is_left_alone(self, page: Path) -> None:
        page.write_text("a\n")

        with pytest.raises(ValueError, match="'x'"):
            measured_page.put("x", "new")
        assert page.read_text() == "a\n"

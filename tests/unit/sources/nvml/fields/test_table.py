"""Tests that the documentation lists the table of NVML's fields."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpumon.sources.nvml.fields.table import NVML_FIELDS, NvmlField

PAGE = Path(__file__).resolve().parents[5] / "docs" / "configuration.md"
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def rows_of_the_page() -> dict[str, str]:
    """How often each field is read, as the page has it."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## What the driver is asked")
    section, _, _ = section.partition("\n## ")
    return {
        name.strip("`"): how_often
        for names, how_often in ROW.findall(section)
        for name in names.split(", ")
    }


class TestThePage:
    def test_lists_all_fields(self) -> None:
        assert sorted(rows_of_the_page()) == sorted(field.name for field in NVML_FIELDS)

    @pytest.mark.parametrize("field", NVML_FIELDS, ids=lambda field: field.name)
    def test_has_the_period_of_each_field(self, field: NvmlField) -> None:
        words = {None: "as they happen", 0.0: "each drain"}
        how_often = rows_of_the_page()[field.name]

        assert how_often.startswith(words.get(field.period_s, f"{field.period_s or 0:g} s"))
        assert ("only with `--nvml-on`" in how_often) is field.opt_in

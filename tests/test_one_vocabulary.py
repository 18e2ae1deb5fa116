"""A thing has the same word in the report, on the page and in docs/glossary.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, WORD_OF_REASON, WORD_OF_VERDICT
from gpumon.core.phase import InputWaitReason
from gpumon.outlets.http.page_files import page_file
from tests.old_words import old_words, places_in, searched_files

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PAGE = page_file("/", None)[1].decode()

CAUSES = {cause.value: word for cause, word in WORD_OF_CAUSE.items()}
VERDICTS = {name.value: word for name, word in WORD_OF_VERDICT.items()}
REASONS = {reason.value: WORD_OF_REASON[reason] for reason in InputWaitReason}


def glossary_rows(title: str) -> dict[str, str]:
    """The words of one table, by their names in JSON."""
    part = GLOSSARY.split(f"## {title}")[1].split("\n## ")[0]
    return {name: word for word, name in re.findall(r"^\| ([^|]+) \| `(\w+)` \|", part, re.M)}


class TestAWord:
    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ("Causes of idle time", CAUSES),
            ("Why a batch is late", REASONS),
            ("Verdicts on a GPU", VERDICTS),
        ],
    )
    def test_is_one_in_report_and_glossary(self, table: str, words: dict[str, str]) -> None:
        assert glossary_rows(table) == words

    def test_cause_name_is_the_same_on_the_page(self) -> None:
        shown = dict(re.findall(r'data-part="(\w+)" hidden><span [^>]*></span>([^<]+)<', PAGE))

        assert {name: shown[name] for name in CAUSES} == CAUSES

    def test_reason_name_is_the_same_on_the_page(self) -> None:
        assert dict(re.findall(r'data-reason="(\w+)" hidden>([^<]+)<', PAGE)) == REASONS


class TestOldWords:
    def test_are_found_in_identifiers_and_prose(self) -> None:
        assert old_words("def was_toldBefore(said: str) -> Heard:") == ["told", "said", "heard"]
        assert old_words("Nobody mends a training of which 2 shall end.") == [
            "nobody", "mends", "training", "of which", "shall",
        ]  # fmt: skip
        assert old_words("the training run is too_short_to_judge; untold taken storytelling") == []

    def test_are_in_no_file(self) -> None:
        """``python -m tests.old_words FOLDER`` lists them, too."""
        assert [found for path in searched_files() for found in places_in(path)] == []

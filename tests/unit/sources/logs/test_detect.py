"""Specification of detection: by content, whatever the file is called."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.formats import formats
from tests.builders_logs import ratios, read_log, rows


class TestAFormatThatIsNotRead:
    def test_is_named_with_what_to_log_instead(self) -> None:
        log = rows('<?xml version="1.0" ?>', "<nvidia_smi_log>")

        with pytest.raises(UnreadableLogError, match=r"line 2: this is the XML.*--format=csv"):
            read_log(log)


class TestEverythingElse:
    def test_is_read_as_csv(self) -> None:
        assert ratios("45\n46\n") == [0.45, 0.46]


class TestTheFormats:
    def test_are_all_files_of_their_folder_and_csv_is_tried_last(self) -> None:
        assert [known.title for known in formats() if known.is_last_resort] == ["CSV"]
        assert formats()[-1].title == "CSV"

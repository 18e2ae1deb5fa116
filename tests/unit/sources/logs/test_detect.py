"""Specification of detection: by content; a format gpumon cannot read yet is named."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from tests.builders_logs import ratios, read_log, rows


class TestAFormatThatCannotBeReadYet:
    @pytest.mark.parametrize(
        ("title", "log"),
        [
            ("the plain table of nvidia-smi",
             rows("Sat Jan 24 21:52:14 2026", "+-----+", "| NVIDIA-SMI 580.95.05   |")),
            ("nvidia-smi dmon", rows("# gpu   pwr  gtemp", "# Idx     W      C")),
            ("nvidia-smi dmon", rows("#Date       Time        gpu    sm", "# gpu    sm   mem")),
            ("nvidia-smi pmon", rows("# gpu        pid  type    sm", "    0    1234  C  45")),
            ("dcgmi dmon", rows("#Entity   GPUTL", "ID", "GPU 0     45")),
            ("the XML", rows('<?xml version="1.0" ?>', "<nvidia_smi_log>")),
        ],
    )  # fmt: skip
    def test_is_named_with_what_to_do_instead(self, title: str, log: str) -> None:
        with pytest.raises(UnreadableLogError, match=f"{title}.*cannot read yet.*--format=csv"):
            read_log(log)


class TestEverythingElse:
    def test_is_read_as_csv(self) -> None:
        assert ratios("45\n46\n") == [0.45, 0.46]

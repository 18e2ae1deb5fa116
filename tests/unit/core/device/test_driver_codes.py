"""Specification of the words for the driver's errors: short, and with something to do."""

from __future__ import annotations

import pytest

from gpumon.core.device.driver_codes import xid_sentence, xid_text

COMMON = (13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120)


class TestAnXid:
    @pytest.mark.parametrize("xid", COMMON)
    def test_that_is_common_has_words_of_its_own(self, xid: int) -> None:
        assert xid_text(xid) != xid_text(999_999)

    @pytest.mark.parametrize("xid", [*COMMON, 999_999])
    def test_is_reported_in_one_line_that_a_log_can_hold(self, xid: int) -> None:
        sentence = xid_sentence(xid)

        assert sentence.startswith(f"XID {xid}: ")
        assert all(words in sentence for words in xid_text(xid))
        assert sentence.isprintable()
        assert len(sentence) < 240

    @pytest.mark.parametrize(
        ("xids", "asks_for"),
        [
            pytest.param([13, 31], "compute-sanitizer", id="a program's own fault"),
            pytest.param([43, 45], "before it", id="what only follows another"),
            pytest.param([48, 62, 64, 95, 119, 120], "reset", id="a GPU not to be trusted"),
        ],
    )
    def test_asks_for_what_helps(self, xids: list[int], asks_for: str) -> None:
        for xid in xids:
            assert asks_for in xid_text(xid).advice
            assert ("reset" in xid_text(xid).advice) is (asks_for == "reset")

    def test_that_no_one_here_knows_says_where_to_look(self) -> None:
        assert "dmesg" in xid_text(999_999).advice

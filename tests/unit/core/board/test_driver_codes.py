"""Specification of the words for the driver's errors: short, and with something to do."""

from __future__ import annotations

import pytest

from gpumon.core.board.driver_codes import xid_sentence, xid_text

COMMON = (13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120)


class TestAnXid:
    @pytest.mark.parametrize("xid", COMMON)
    def test_that_is_common_has_words_of_its_own(self, xid: int) -> None:
        assert xid_text(xid) != xid_text(999_999)

    @pytest.mark.parametrize("xid", [*COMMON, 999_999])
    def test_is_said_in_one_line_that_a_log_can_hold(self, xid: int) -> None:
        sentence = xid_sentence(xid)

        assert sentence.startswith(f"XID {xid}: ")
        assert "What to do: " in sentence
        assert sentence.isprintable()
        assert len(sentence) < 240

    @pytest.mark.parametrize("xid", [13, 31])
    def test_of_a_programs_own_fault_names_the_tool_that_finds_it(self, xid: int) -> None:
        assert "compute-sanitizer" in xid_text(xid).advice

    @pytest.mark.parametrize("xid", [43, 45])
    def test_that_only_follows_another_does_not_ask_for_a_reset(self, xid: int) -> None:
        assert "reset" not in xid_text(xid).advice
        assert "before it" in xid_text(xid).advice

    @pytest.mark.parametrize("xid", [48, 62, 64, 95, 119, 120])
    def test_after_which_the_gpu_is_not_to_be_trusted_asks_for_a_reset(self, xid: int) -> None:
        assert "reset" in xid_text(xid).advice

    def test_that_nobody_here_knows_says_where_to_look(self) -> None:
        assert "dmesg" in xid_text(999_999).advice

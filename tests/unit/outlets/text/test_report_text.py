"""Specification of the text report: where every second went, on whatever the terminal can show.

Its text is in ``tests/golden``.
"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.phase import CAUSES, IdleCause, InputWaitReason
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle, style_for
from tests.builders.report import gpu, report, run, with_totals
from tests.unit.outlets.report_lines import PLAIN, STARVED, shown

UNKNOWN = IdleCause.UNKNOWN


class TestWhenItBegan:
    @pytest.mark.parametrize(
        ("started_at", "shown_as"),
        [
            ("2026-11-22T03:01:04.997788+00:00", "from 2026-11-22 03:01:04 UTC."),
            ("2026-11-22T03:01:04.500+05:30", "from 2026-11-22 03:01:04 +0530."),
            ("2026-11-22T03:01:04.500", "from 2026-11-22 03:01:04."),
            ("some time ago", "from some time ago."),
        ],
        ids=["in UTC", "in the zone of the log", "without a zone", "no time at all"],
    )
    def test_is_written_as_people_write_a_time(self, started_at: str, shown_as: str) -> None:
        text = " ".join(" ".join(shown(replace(STARVED, started_at=started_at))).split())

        assert shown_as in text


class TestARunOfBefore:
    def test_is_left_out_where_it_ended_before_observation_began(self) -> None:
        before = replace(run(), run="yesterday", gpu_uuids=(), alive=False, ended_before=True)
        idle = gpu(20, {UNKNOWN: 40})

        assert shown(report(idle, runs=(before,))) == shown(report(idle))
        assert shown(report(runs=(before,))) == shown(report())


PARTS = st.lists(st.integers(0, 10**14), min_size=4, max_size=4)
REASONS = st.dictionaries(st.sampled_from([*InputWaitReason]), st.integers(0, 10**13))


def in_lines(lines: list[str], prefix: str) -> Decimal:
    """The sum of the figures of the lines that begin so."""
    figures = [
        line.strip().removeprefix(prefix) for line in lines if line.strip().startswith(prefix)
    ]
    return sum(
        (Decimal(re.findall(r"([\d.]+) (?:s|min|h)\b", one)[0]) for one in figures), Decimal()
    )


class TestThePartsOfACause:
    """As printed, they add up to what is printed above them."""

    @given(PARTS, REASONS)
    def test_that_is_a_wait_for_input_are_when_it_was_and_why(
        self, parts_ns: list[int], reasons_ns: dict[InputWaitReason, int]
    ) -> None:
        first, validation, epochs, _ = parts_ns
        waited_ns = max(sum(parts_ns), sum(reasons_ns.values()))
        waiting = with_totals(
            gpu(1e4),
            idle_ns={IdleCause.INPUT_WAIT: waited_ns},
            first_input_wait_ns=first,
            validation_input_wait_ns=validation,
            epoch_input_wait_ns=epochs,
            input_wait_by_reason_ns={reason.value: ns for reason, ns in reasons_ns.items()},
        )

        lines = shown(report(waiting))

        row = in_lines(lines, "idle, waiting for input")
        for prefix in ("when:", "due to"):
            assert in_lines(lines, prefix) in (0, row)
        if reasons_ns:
            assert in_lines(lines, "due to") == row

    @given(st.integers(0, 10**14), st.integers(0, 10**14))
    def test_of_a_step_are_what_is_python_and_what_is_not(self, lock_ns: int, rest_ns: int) -> None:
        held = with_totals(
            gpu(1e4),
            idle_ns={IdleCause.WITHIN_STEP: lock_ns + rest_ns},
            within_step_by_reason_ns={"gil_bound": lock_ns, "unknown": rest_ns},
        )

        lines = shown(report(held))

        assert in_lines(lines, "due to") in (0, in_lines(lines, "idle, within the step"))

    @given(st.integers(0, 10**14), st.integers(0, 10**14))
    def test_that_is_unknown_are_what_is_suspected_and_what_is_not(
        self, suspected_ns: int, rest_ns: int
    ) -> None:
        late = with_totals(
            gpu(1e4), idle_ns={UNKNOWN: suspected_ns + rest_ns}, suspected_ns=suspected_ns
        )

        lines = shown(report(late))

        assert in_lines(lines, "of it") in (0, in_lines(lines, "idle, cause unknown"))


class TestTheTerminal:
    def test_gets_no_colour_where_it_is_none(self) -> None:
        assert style_for(io.StringIO(), {}) == TextStyle(colour=False, unicode=False)

    @pytest.mark.parametrize(
        ("environ", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
    )
    def test_gets_colour_where_it_wants_it(self, environ: dict[str, str], colour: bool) -> None:
        class Terminal(io.TextIOWrapper):
            def isatty(self) -> bool:
                return True

        stream = Terminal(io.BytesIO(), encoding="utf-8")

        assert style_for(stream, environ) == TextStyle(colour=colour, unicode=True)

    def test_gets_red_for_a_high_loss_and_the_same_words(self) -> None:
        painted = render_report(STARVED, TextStyle(colour=True))
        bare = painted
        for code in ("\x1b[31m", "\x1b[1m", "\x1b[0m"):
            bare = bare.replace(code, "")

        assert painted.startswith("\x1b[31mVerdict:")
        assert bare == render_report(STARVED, PLAIN)

    def test_gets_ascii_where_it_knows_no_more(self) -> None:
        text = render_report(replace(STARVED, source="Gerät.csv"), TextStyle(unicode=False))

        assert text.isascii()
        assert "<-" in text
        assert "####" in text

    @given(
        st.lists(
            st.dictionaries(st.sampled_from(CAUSES), st.floats(0.001, 9e6), max_size=12),
            max_size=6,
        ),
        st.booleans(),
    )
    def test_is_never_wider_than_80_columns(
        self, idle: list[dict[IdleCause, float]], unicode: bool
    ) -> None:
        one = report(*(gpu(9e6, causes, index=index) for index, causes in enumerate(idle)))

        assert max(len(line) for line in shown(one, TextStyle(unicode=unicode))) <= 80

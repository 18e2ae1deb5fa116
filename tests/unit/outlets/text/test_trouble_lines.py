"""Specification of a report on GPUs in trouble: on one screen, in the colour of the worst of it.

Its text is in ``tests/golden``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.outlets.text.comparison import side_by_side
from gpumon.outlets.text.headline import verdict_line
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from gpumon.outlets.text.trouble_lines import trouble_title
from tests.builders.report import filled, gpm_fill, gpu, report
from tests.unit.core.device.test_troubles import LOST, reported
from tests.unit.outlets.report_lines import PLAIN, shown


class TestAGpuInTrouble:
    @pytest.mark.parametrize("xid", [79, 31], ids=["of the board", "of a program"])
    @pytest.mark.parametrize("others", [(), (gpu(98, index=1),)], ids=["alone", "beside another"])
    def test_is_not_called_healthy(self, xid: int, others: tuple[()]) -> None:
        broken = replace(gpu(98), reported_troubles=reported((xid, 2)))

        line = verdict_line(report(broken, *others))

        assert line.startswith(trouble_title(report(broken)))
        assert "healthy" not in line.lower()
        assert f"XID {xid}" in line

    def test_is_named_in_a_comparison_too(self) -> None:
        hot = report(filled(gpm_fill(0.9, held=0.4)))

        assert side_by_side(hot, hot, PLAIN).count(trouble_title(hot)) == 2


class TestEverythingAtOnce:
    def test_fits_on_the_screen_and_what_is_left_out_is_counted(self) -> None:
        twelve = (
            replace(
                gpu(98, index=at),
                reported_troubles=reported((13 + at, 1), (79, at + 1)),
                error=LOST,
            )
            for at in range(12)
        )

        lines = shown(report(*twelve))

        assert max(map(len, lines)) <= 80
        assert any("--json" in line for line in lines)

    @pytest.mark.parametrize(("xid", "colour"), [(79, "\x1b[31m"), (31, "\x1b[33m")])
    def test_is_as_red_as_the_worst_of_it_is(self, xid: int, colour: str) -> None:
        one = report(replace(gpu(60), reported_troubles=reported((xid, 1))))

        assert render_report(one, TextStyle(colour=True)).startswith(colour)

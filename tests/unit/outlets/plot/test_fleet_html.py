"""Tests of the page on many machines: everything in it, and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import re

from gpumon.core.fleet.fleet_report import (
    HOSTS,
    RUNS,
    FewRuns,
    FleetReport,
    Loser,
    Prices,
    Ranking,
    Rest,
)
from gpumon.core.wording import label_text
from gpumon.outlets.plot.fleet_html import fleet_page
from gpumon.outlets.text.fleet_text import verdict_sentence
from tests.unit.outlets.plot.test_html import HOSTILE, Page

HOUR_S = 3_600.0
SHOWN = FleetReport(
    source=f"http://prometheus/{HOSTILE}",
    started_at=0.0,
    ended_at=7 * 86_400.0,
    tile_seconds=HOUR_S,
    known_tiles=100,
    all_tiles=168,
    first_tile_at=0.0,
    observed_seconds=1_000 * HOUR_S,
    expected_seconds=1_680 * HOUR_S,
    busy_seconds=500 * HOUR_S,
    not_in_use_seconds=100 * HOUR_S,
    lost_by_cause={"input_wait": 300 * HOUR_S, HOSTILE: 100 * HOUR_S},
    energy_by_use={"lost": 3.6e8},
    rankings=(
        Ranking(
            dimension=RUNS,
            worst=(
                Loser(
                    name=HOSTILE,
                    lost_by_cause={HOSTILE: 100 * HOUR_S},
                    users=(HOSTILE,),
                    hosts=(HOSTILE,),
                ),
            ),
            rest=Rest(7, 50 * HOUR_S),
            unnamed_lost_seconds=9 * HOUR_S,
        ),
        Ranking(dimension=HOSTS, worst=()),
    ),
    few_runs=(FewRuns("input_wait", (HOSTILE,), 290 * HOUR_S, (HOSTILE,)),),
    prices=Prices(2.5, 0.3),
    warnings=(label_text(HOSTILE),),
    notes=(label_text(HOSTILE),),
)
TEXT = fleet_page(SHOWN).decode()
PAGE = Page(TEXT)


class TestThePage:
    def test_says_what_the_text_says(self) -> None:
        assert verdict_sentence(SHOWN) in PAGE.text
        assert "Only 60 % of the time was observed" in PAGE.text
        assert "1,000 at 2.50 per GPU-hour" in PAGE.text
        assert "7 others" in PAGE.text
        assert "no tagged run" in PAGE.text

    def test_holds_only_text_where_a_name_is_hostile(self) -> None:
        assert "script" not in PAGE.tags
        assert "img" not in PAGE.tags
        assert "\x00" not in TEXT
        assert not [name for name, _ in PAGE.attributes if name.startswith("on")]

    def test_loads_and_runs_nothing(self) -> None:
        (style,) = re.findall("<style>(.*?)</style>", TEXT, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

        assert f"default-src 'none'; style-src 'sha256-{digest}'" in TEXT
        assert not {"src", "href", "style"} & {name for name, _ in PAGE.attributes}

    def test_has_a_bar_for_each_part_and_each_of_the_worst(self) -> None:
        assert PAGE.tags.count("rect") == 5
        assert 'class="bar lost"' in TEXT

"""Stories held at the rhythms of scrapes and evaluations: one each, all four by ``make truth``."""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

import pytest

from tests.unit.prometheus.builders_promtool import Hold, Rhythm, Story

UNLIKE = (Rhythm(15, 60, 10), Rhythm(60, 15, 20))
ALIKE = (Rhythm(15, 15, 5), Rhythm(60, 60, 5))  # the last, evaluated 55 s after each scrape
IS_WHOLE = bool(os.environ.get("GPUMON_WHOLE_TABLE"))


@pytest.fixture(params=[*UNLIKE, *ALIKE] if IS_WHOLE else [None], ids=str)
def hold(request: pytest.FixtureRequest, tmp_path: Path) -> Hold:
    """Holds a story at a rhythm; which of the two unlike ones, the name of the test decides."""
    name = request.node.originalname
    rhythm: Rhythm = request.param or UNLIKE[crc32(name.encode()) % len(UNLIKE)]

    def hold(story: Story) -> None:
        assert story.told(rhythm, tmp_path) == ""

    return hold

"""Verifies each story at one pair of intervals; ``make truth`` verifies all four."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from tests.unit.prometheus.builders_promtool import IS_WHOLE, Rhythm, Story, Verify

DIFFERENT = (Rhythm(15, 60, 10), Rhythm(60, 15, 20))
EQUAL = (Rhythm(15, 15, 5), Rhythm(60, 60, 5))  # the last, evaluated 55 s after each scrape


@pytest.fixture(params=[*DIFFERENT, *EQUAL] if IS_WHOLE else [None], ids=str)
def verify(request: pytest.FixtureRequest, tmp_path: Path) -> Verify:
    """Verifies a story at a rhythm, chosen by the name of the test."""
    name = request.node.originalname
    rhythm: Rhythm = request.param or DIFFERENT[crc32(name.encode()) % len(DIFFERENT)]

    def verify(story: Story) -> None:
        assert story.failures(rhythm, tmp_path) == ""

    return verify

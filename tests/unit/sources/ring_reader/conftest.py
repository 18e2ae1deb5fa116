"""A ring in the test's own folder, with its reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.ring import WatchedRing


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[WatchedRing]:
    watched = WatchedRing(tmp_path)
    yield watched
    watched.reader.close()

"""A ring that was just made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.ring import WrittenRing


@pytest.fixture
def ring(tmp_path: Path) -> WrittenRing:
    return WrittenRing(tmp_path)

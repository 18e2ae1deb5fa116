"""The machine whose driver misbehaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.faulty_machine import Machine


@pytest.fixture
def machine(tmp_path: Path, fake_library: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, fake_library.parent)
    yield made
    made.fake.close()

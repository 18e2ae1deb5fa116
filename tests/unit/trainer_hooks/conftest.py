"""A process that has recorded nothing yet, with a ring of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_hooks.ring import process_ring
from trainer_hooks.ring.guard import QuietWarningOnce, QuietWarningPerName
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the process had just begun: no ring yet, and a folder for it."""
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(process_ring._Slot, "ring", None)
    return tmp_path


@pytest.fixture
def own_ring(own_folder: Path) -> ProcessRing:
    return process_ring.process_ring()


@pytest.fixture
def writer(own_ring: ProcessRing) -> RingWriter:
    assert own_ring.writer is not None
    return own_ring.writer


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was warned of yet."""
    monkeypatch.setattr("trainer_hooks.phases._warn_of_phase", QuietWarningPerName(8))
    monkeypatch.setattr("trainer_hooks.phases._warn_of_samples", QuietWarningOnce())
    monkeypatch.setattr(process_ring, "_warn_of_name", QuietWarningOnce())
    monkeypatch.setattr(process_ring, "_warn_of_shares", QuietWarningOnce())

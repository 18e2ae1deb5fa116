"""A process that has said nothing yet, with a ring of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_hooks.ring import process_ring
from trainer_hooks.ring.quiet_warning import QuietWarningOnce, QuietWarningPerWord
from trainer_hooks.ring.ring_writer import RingWriter


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RingWriter:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(process_ring._Slot, "ring", None)
    ring = process_ring.process_ring()
    assert ring.writer is not None
    return ring.writer


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was warned of yet."""
    monkeypatch.setattr("trainer_hooks.phases._warn_of_phase", QuietWarningPerWord(8))
    monkeypatch.setattr("trainer_hooks.phases._warn_of_samples", QuietWarningOnce())

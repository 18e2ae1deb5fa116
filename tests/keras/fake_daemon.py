"""The state file of a daemon, with counters that a test chooses."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from gpumon.core.ring_format.runtime_paths import STATE_FILE

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class FakeDaemon:
    """Writes ``state.json`` as a daemon does; seconds here, nanoseconds there."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / STATE_FILE
        self.document: dict[str, Any] = {
            "schema": "gpumon.state/1",
            "boot_id": _BOOT_ID.read_text().strip(),
            "period_ns": 1_000_000_000,
            "gpus": [],
            "runs": [],
        }

    def counts(self, index: int = 0, uuid: str = "GPU-0", **seconds: float) -> None:
        """From now on the counters of one GPU are these."""
        names = ("observed", "busy", "in_use", "starved", "suspected")
        gpu = {"index": index, "uuid": uuid, **{f"{name}_ns": 0 for name in names}}
        gpu.update({f"{name[:-2]}_ns": round(1e9 * value) for name, value in seconds.items()})
        others = [one for one in self.document["gpus"] if one["uuid"] != uuid]
        self.document["gpus"] = [*others, gpu]
        self.writes()

    def writes(self, age_s: float = 0.0) -> None:
        """Replace the file, as of so many seconds ago."""
        self.document["monotonic_ns"] = time.monotonic_ns() - round(1e9 * age_s)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self.document))
        fresh.replace(self.path)

    def dies(self) -> None:
        """Leave nothing behind."""
        self.path.unlink(missing_ok=True)

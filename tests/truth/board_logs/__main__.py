"""Log a board with nvidia-smi and record it with gpumon during a training run of each kind.

    python -m tests.truth.board_logs FOLDER [SECONDS]

FOLDER gets ``board.csv`` (nvidia-smi, a row a second), ``board.dmon``, ``board.gpumon`` (a
recording, with the tags of the runs) and ``kinds.json`` (begin and end of each run, UTC). A run
takes SECONDS (55). No setting of the board is changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

KINDS: Final = (
    "late_loader", "checkpoints", "shard_fetch", "requests", "rounds", "erratic_storage",
    "asynchronous_checkpoints", "late_validation",
)  # fmt: skip
ROWS: Final = (
    "nvidia-smi --format=csv -l 1 --query-gpu=timestamp,index,uuid,name,utilization.gpu,"
    "utilization.memory,memory.used,power.draw,clocks.sm"
)
PCIE: Final = "nvidia-smi dmon -s puctm -o DT"


def main(folder: Path, seconds: str) -> None:
    """Log all kinds, one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    ran = []
    with ExitStack() as loggers:
        for command, name in ((ROWS, "board.csv"), (PCIE, "board.dmon")):
            out = loggers.enter_context((folder / name).open("wb"))
            loggers.callback(_end, subprocess.Popen(command.split(), stdout=out))
        recorder = [sys.executable, "-m", "gpumon", "record", str(folder / "board.gpumon")]
        loggers.callback(_end, subprocess.Popen(recorder))
        time.sleep(3)
        for kind in KINDS:
            run = [sys.executable, "-m", "tests.truth.board_logs.training", kind, seconds]
            from_utc = datetime.now(timezone.utc).isoformat()
            code = subprocess.run(run, env=os.environ | {"GPUMON_RUN": kind}, check=False)
            ran.append((kind, from_utc, datetime.now(timezone.utc).isoformat(), code.returncode))
            print(*ran[-1], flush=True)
            (folder / "kinds.json").write_text(json.dumps(ran, indent=1), encoding="utf-8")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), (sys.argv[2:] or ["55"])[0])

"""What real stack samples of a program show, function by function."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.place import Place, WorkerDoing, place_of, worker_doing
from gpumon.sources.stacks.py_spy import PySpy, find_py_spy
from gpumon.sources.system_clock import SystemClock
from tests.needs import missing
from tests.processes import ending
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class Seen:
    """Samples of a program, as many as it takes to see what is expected."""

    def __init__(self, program: str, expected: dict[str, IdleCause | None]) -> None:
        self.expected = expected
        self.places: dict[str, list[Place]] = defaultdict(list)
        self.workers: list[WorkerDoing] = []
        py_spy = find_py_spy()
        if py_spy is None:
            missing("py-spy is not installed: pip install py-spy")
            raise AssertionError
        reader = PySpy(py_spy, SystemClock())
        variables = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.stacks.programs.{program}"],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        with ending(process):
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "there\n"
                until(lambda: self._has_all_after(reader, process.pid), PATIENCE_S, every_s=0.03)
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # its workers, too

    def causes(self, function: str) -> set[IdleCause | None]:
        return {place.cause for place in self.places[function]}

    def _has_all_after(self, reader: PySpy, pid: int) -> bool:
        sample = reader.read(pid)
        place = place_of(sample)
        threads = sample.processes[0].threads if sample.processes else ()
        names = {frame.function for thread in threads[:1] for frame in thread.frames}
        for function in self.expected:
            if function in names:
                self.places[function].append(place)
        self.workers += [worker_doing(process) for process in sample.processes[1:]]
        return not list(self.unseen())

    def unseen(self) -> Iterable[str]:
        """Functions that were not yet seen with their cause."""
        return (name for name, cause in self.expected.items() if cause not in self.causes(name))

"""A fake /proc, for what the kernel of this machine does not show."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumon.core.ring_format.events import RingReading
from tests.builders.monitor import ring_reading
from tests.builders.ring import run_facts

PID = 4_711


class FakeProc:
    """Processes as files, with counters from the test; ``folder`` replaces ``/proc``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pressure").mkdir(parents=True)

    def task(
        self,
        pid: int,
        tid: int | None = None,
        *,
        ran_ns: int = 0,
        queued_ns: int = 0,
        switches: int = 0,
        state: str = "S",
        wchan: str = "futex_do_wait",
        faults: int = 0,
        began_ticks: int = 0,
        inner: int | None = None,
    ) -> Path:
        """One thread of a process, by default the first, with all its files."""
        is_first = tid is None or tid == pid
        task = self.folder / str(pid) / "task" / str(pid if tid is None else tid)
        task.mkdir(parents=True, exist_ok=True)
        numbers = f"{pid}" if inner is None else f"{pid}\t{inner}"
        known = {path.name for path in task.parent.iterdir()}
        stat = (
            f"{pid} (a name) with brackets) {state} 1 0 0 0 0 0 0 0 {faults} 0 0 0 0 0 0 0 "
            f"{len(known)} 0 "
        )
        status = f"Name:\tx\nNSpid:\t{numbers}\nvoluntary_ctxt_switches:\t{switches}\n"
        files = {
            "schedstat": f"{ran_ns} {queued_ns} 7\n", "stat": f"{stat}{began_ticks} 0\n",
            "status": status, "wchan": wchan, "children": "",
        }  # fmt: skip
        for name, text in files.items():
            (task / name).write_text(text)
            if is_first or name == "stat":
                (self.folder / str(pid) / name).write_text(text)
        return task

    def starts(self, parent: int, *pids: int) -> None:
        """Make these the children of the process' first thread."""
        children = self.folder / str(parent) / "task" / str(parent) / "children"
        children.write_text(" ".join(map(str, pids)))

    def reads(self, pid: int, read_bytes: int) -> None:
        io = f"rchar: 1\nread_bytes: {read_bytes}\nwrite_bytes: 0\n"
        (self.folder / str(pid) / "io").write_text(io)

    def ends(self, pid: int) -> None:
        for counters in (self.folder / str(pid)).glob("task/*/schedstat"):
            counters.write_text("")  # as an open descriptor reads it
        (self.folder / str(pid)).rename(self.folder / f"gone-{pid}")


def reading_of(pid: int = PID, *, inner: int | None = None, **changes: Any) -> RingReading:
    """The ring of a living run with this pid; ``inner``: its pid in its container."""
    facts = replace(run_facts(), pid=pid if inner is None else inner)
    return ring_reading(facts, host_pid=pid, owner_uid=os.geteuid())._replace(**changes)

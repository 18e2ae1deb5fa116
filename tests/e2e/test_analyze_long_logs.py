"""``gpumon analyze`` on logs that are long, or endless: its memory stays flat."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench_analyze_throughput import write_log
from tests.programs import ran_python

ROWS = 135_000
"""Just long enough for a second process."""
MEASURED = """
import resource, sys
from gpumon.cli.main import main
code = main(["analyze", "--json", sys.argv[1]])
peaks_kib = [
    resource.getrusage(who).ru_maxrss
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
]
print(code, *peaks_kib, file=sys.stderr)
"""
FORKED = '"$0" -c "$@" || exit 1; exit 0'
"""A process is reported to have had the memory of who forked it: here a shell, not all tests."""


def peaks_mib(path: Path) -> tuple[float, float]:
    """The most memory of each of both processes."""
    done = subprocess.run(
        ["sh", "-c", FORKED, sys.executable, MEASURED, str(path)], capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    code, ours_kib, childs_kib = done.stderr.split()
    assert code == "0"
    return int(ours_kib) / 1024, int(childs_kib) / 1024


@pytest.mark.soak
def test_twice_the_log_takes_no_more_memory(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    write_log(path, ROWS, gpus=8, varies=True)
    once = peaks_mib(path)
    write_log(path, 2 * ROWS, gpus=8, varies=True)
    twice = peaks_mib(path)

    grown_mib = [after - before for before, after in zip(once, twice, strict=True)]
    assert max(grown_mib) < 6, f"{once} MiB, then {twice}"
    assert sum(twice) < 200


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_an_end_is_refused_at_once(path: str) -> None:
    done = ran_python("-m", "gpumon", "analyze", path, timeout_s=30)

    assert done.returncode == 1
    assert done.stderr.startswith(f"gpumon: {path}: is binary, not text")

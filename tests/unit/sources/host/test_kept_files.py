"""Tests of kept files: opened once, bounded in number, closed with their task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.sources.host.kept_files import KeptFiles
from tests.processes import ending


def open_here() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in "abc":
        (tmp_path / name).write_text(name)
    return [str(tmp_path / name) for name in "abc"]


class TestAFile:
    def test_is_read_again_each_time(self, files: list[str]) -> None:
        kept = KeptFiles()
        before = kept.read(files[0])
        Path(files[0]).write_text("later")

        assert (before, kept.read(files[0])) == (b"a", b"later")
        kept.close()

    def test_stays_open_up_to_a_limit(self, files: list[str]) -> None:
        before, kept = open_here(), KeptFiles(max_open=2)

        assert [kept.read(file) for file in files * 2] == [b"a", b"b", b"c"] * 2
        assert open_here() == before + 2

        kept.close()
        kept.close()
        assert open_here() == before

    def test_of_many_records_is_read_to_its_end(self) -> None:
        """The kernel gives a page of them at a time."""
        assert len(KeptFiles.read_once("/proc/self/maps", 8_000)) == 8_000

    def test_of_a_process_that_ended_is_closed(self) -> None:
        before, kept = open_here(), KeptFiles()
        with ending(subprocess.Popen([sys.executable, "-S", "-c", "input()"])) as process:
            assert kept.read(f"/proc/{process.pid}/schedstat")
        assert process.wait() is not None

        with pytest.raises(ProcessLookupError):
            kept.read(f"/proc/{process.pid}/schedstat")

        assert open_here() == before

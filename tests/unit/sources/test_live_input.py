"""Tests of a file that is followed: what another one in its place shows, and its age."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.sources.live_input import FollowedFile, LivePipe, LiveReading


class Looks(LiveReading):
    """Ends the reading where nothing comes."""

    def __init__(self) -> None:
        super().__init__()
        self.on_wait = self._end

    def _end(self) -> None:
        self.ended = True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.csv"
    path.write_bytes(b"".join(b"%03d, 97\n" % at for at in range(1_000)))
    return path


@pytest.fixture
def followed(path: Path) -> Iterator[FollowedFile]:
    """The file, read to its end."""
    with closing(FollowedFile(str(path), Looks())) as followed:
        assert len(followed.read(1 << 20)) == path.stat().st_size
        yield followed


class TestAFileThatReplacesAnother:
    @pytest.mark.parametrize("size", [4_000, 9_000, 20_000], ids=["shorter", "as long", "longer"])
    def test_is_read_from_its_start(self, path: Path, followed: FollowedFile, size: int) -> None:
        new = (b"other, 3\n" * size)[:size]
        path.write_bytes(new)  # truncates, and outgrows the old length before anybody looks

        assert followed.read(1 << 20) == b""
        assert followed.next_file()
        assert followed.read(1 << 20) == new
        assert followed.new_files == 1

    def test_is_not_one_that_only_grew(self, path: Path, followed: FollowedFile) -> None:
        for line in (b"1000, 97\n", b"1001", b", 97\n"):
            with path.open("ab") as log:
                log.write(line)

            assert followed.read(1 << 20) == line
        assert followed.new_files == 0


class TestTheAgeOfTheNewestBytes:
    def test_is_that_of_the_file(self, path: Path) -> None:
        os.utime(path, (1_000, 1_000))
        live = Looks()
        with closing(FollowedFile(str(path), live)) as followed:
            followed.read(1 << 20)

        assert live.newest_s == 1_000

    def test_of_a_pipe_is_the_time_of_the_read(self) -> None:
        read, write = os.pipe()
        live = LiveReading()
        os.write(write, b"97\n")
        LivePipe(read, live).read(10)
        os.close(read)
        os.close(write)

        assert live.newest_s is not None
        assert live.newest_s > 1_000_000_000


def test_a_pipe_may_have_a_descriptor_that_select_refuses() -> None:
    read, write = os.pipe()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2_048, hard), hard))
    try:
        above = fcntl.fcntl(read, fcntl.F_DUPFD, 1_100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.write(write, b"97\n")

    assert LivePipe(above, LiveReading()).read(10) == b"97\n"
    for descriptor in (read, above, write):
        os.close(descriptor)

"""Specification of whose a process is, as the kernel tells it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.sources.process_owners import ProcessOwners
from tests.neighbours import NOBODY, as_root, become

HOST_PIDS = "pid:[4026531836]"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A made-up ``/proc`` of the host."""
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to(HOST_PIDS)
    return tmp_path


def process(proc: Path, pid: int, name: str, uids: str = "7\t1000\t8\t9") -> None:
    (proc / str(pid)).mkdir()
    status = f"Name:\t{name}\nUmask:\t0022\nPid:\t{pid}\nUid:\t{uids}\nGid:\t1\t1\t1\t1\n"
    (proc / str(pid) / "status").write_text(status)


with_pids_of_the_host = pytest.mark.skipif(
    str(Path("/proc/self/ns/pid").readlink()) != HOST_PIDS, reason="pids here are not the host's"
)


class TestTheOwnerOfAProcess:
    @pytest.mark.parametrize(
        ("name", "uids", "owner"),
        [
            pytest.param("python", "7\t1000\t8\t9", 1000, id="whom it makes files as"),
            # It computes for its clients.
            pytest.param("nvidia-cuda-mps", "0\t0\t0\t0", None, id="nobody certain of a server"),
            pytest.param("python", "", None, id="unknown where the kernel says nothing"),
            pytest.param("python", "7", None, id="unknown where the kernel says too little"),
            pytest.param("python", "7\tx", None, id="unknown where the kernel says no number"),
        ],
    )
    def test_is(self, proc: Path, name: str, uids: str, owner: int | None) -> None:
        process(proc, 4000, name, uids)

        assert ProcessOwners(proc).uid(4000) == owner

    def test_is_unknown_of_one_that_is_gone_or_hidden(self, proc: Path) -> None:
        assert ProcessOwners(proc).uid(4000) is None

    def test_is_unknown_where_pids_are_not_those_of_the_driver(self, proc: Path) -> None:
        process(proc, 4000, "python")
        (proc / "self" / "ns" / "pid").unlink()
        (proc / "self" / "ns" / "pid").symlink_to("pid:[4026532001]")

        assert ProcessOwners(proc).uid(4000) is None

    @with_pids_of_the_host
    def test_is_known_of_this_process(self) -> None:
        assert ProcessOwners().uid(os.getpid()) == os.geteuid()

    @as_root
    @with_pids_of_the_host
    def test_is_known_of_one_that_became_somebody_else(self) -> None:
        program = f"{become()}print('ready', flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdin is not None
            assert other.stdout.readline() == b"ready\n"

            assert ProcessOwners().uid(other.pid) == NOBODY
            other.stdin.write(b"\n")

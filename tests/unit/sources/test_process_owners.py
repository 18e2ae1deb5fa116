"""Tests of the user of a process, as the kernel shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.sources.process_owners import ProcessOwners
from tests.other_users import OTHER_UID, READER_GROUP, as_root, become, hiding, needs_hidepid
from tests.processes import HOST_PIDS, ending, with_pids_of_the_host
from tests.waiting import wait_until


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


class TestTheOwnerOfAProcess:
    @pytest.mark.parametrize(
        ("name", "uids", "owner"),
        [
            pytest.param("python", "7\t1000\t8\t9", 1000, id="the owner of the files it creates"),
            # It computes for its clients.
            pytest.param("nvidia-cuda-mps", "0\t0\t0\t0", None, id="none of a server"),
            pytest.param("python", "", None, id="unknown without a number"),
            pytest.param("python", "7", None, id="unknown with too few numbers"),
            pytest.param("python", "7\tx", None, id="unknown of no number"),
        ],
    )
    def test_is(self, proc: Path, name: str, uids: str, owner: int | None) -> None:
        process(proc, 4000, name, uids)

        assert ProcessOwners(proc).owner(4000).uid == owner

    def test_is_unknown_in_another_pid_namespace(self, proc: Path) -> None:
        process(proc, 4000, "python")
        (proc / "self" / "ns" / "pid").unlink()
        (proc / "self" / "ns" / "pid").symlink_to("pid:[4026532001]")

        assert ProcessOwners(proc).owner(4000).uid is None

    @as_root
    @with_pids_of_the_host
    def test_is_known_of_a_process_that_changed_its_user(self) -> None:
        program = f"{become()}print('ready', flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdin is not None
            assert other.stdout.readline() == b"ready\n"

            assert ProcessOwners().owner(other.pid).uid == OTHER_UID
            other.stdin.write(b"\n")


OTHER_USER = 12_345


@needs_hidepid
@with_pids_of_the_host
class TestAProcWithHidepid:
    """The kernel's own, as another user and the superuser without rights see it."""

    @pytest.mark.parametrize("hidepid", [1, 2])
    @pytest.mark.parametrize("uid", [OTHER_UID, 0])
    def test_hides_the_owner(self, hidepid: int, uid: int) -> None:
        assert owner_as_seen_by(uid, hidepid=hidepid) == "None True False"

    @pytest.mark.parametrize("hidepid", [1, 2])
    def test_shows_it_to_the_group_of_the_mount(self, hidepid: int) -> None:
        seen = owner_as_seen_by(OTHER_UID, hidepid=hidepid, in_group=True)
        assert seen == f"{OTHER_USER} False False"


def owner_as_seen_by(uid: int, *, hidepid: int, in_group: bool = False) -> str:
    """The owner of another user's process, as ``uid`` sees it."""
    become_other = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]
    with ending(subprocess.Popen([*become_other, "sleep", "60"])) as other:
        wait_until(lambda: Path(f"/proc/{other.pid}/comm").read_text() == "sleep\n")
        return ask_owner(other.pid, uid, hidepid=hidepid, in_group=in_group)


def ask_owner(pid: int, uid: int, *, hidepid: int, in_group: bool = False) -> str:
    groups = [READER_GROUP] if in_group else []
    code = (
        "import os\n"
        "from gpumon.sources.process_owners import ProcessOwners\n"
        f"os.setgroups({groups}); os.setgid({uid}); os.setuid({uid})\n"
        f"print(*ProcessOwners().owner({pid}))"
    )
    done = subprocess.run(
        hiding([sys.executable, "-c", code], hidepid=hidepid),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr

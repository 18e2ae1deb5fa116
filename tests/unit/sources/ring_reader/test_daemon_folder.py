"""The daemon's folder: private, no link, locked against a second daemon."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.errors import FolderInUseError, GpumonError
from gpumon.sources.ring_reader.daemon_folder import (
    LockedFolder,
    claim_runtime_dir,
    ring_folders,
    runtime_dir_to_be,
)
from gpumon.sources.ring_reader.ring_folder import folders_to_read
from tests.other_users import OTHER_UID, as_root


def environ_of(folder: Path) -> dict[str, str]:
    return {"GPUMON_RUNTIME_DIR": str(folder)}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestADaemonsFolder:
    def test_is_made_for_its_owner_alone_whatever_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            folder = claim_runtime_dir(environ_of(tmp_path / "a" / "b"))
        finally:
            os.umask(before)

        assert (mode(folder), mode(folder / "phases")) == (0o700, 0o700)
        assert claim_runtime_dir(environ_of(folder)) == folder  # it may be there already
        assert runtime_dir_to_be(environ_of(folder / "c")) == (folder / "c", "")
        assert not (folder / "c").exists()
        assert ring_folders(folder)[0] == str(folder)

    def test_of_a_user_lies_in_the_session(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uid = os.getuid() or 65_534
        session = tmp_path / "session"
        session.mkdir()
        if os.getuid() == 0:
            os.chown(session, uid, -1)
        environ = {"XDG_RUNTIME_DIR": str(session)}

        monkeypatch.setattr(os, "geteuid", lambda: uid)

        assert runtime_dir_to_be(environ)[1] == ""

    @pytest.mark.parametrize("name", ["link", "file", "open"])
    def test_is_refused_where_it_cannot_be_trusted(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        (tmp_path / "file").write_text("")
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)

        with pytest.raises(GpumonError, match=str(tmp_path / name)):
            claim_runtime_dir(environ_of(tmp_path / name))
        assert runtime_dir_to_be(environ_of(tmp_path / name))[0] is None

    def test_that_cannot_be_written_is_named_once_with_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # the superuser may always

        with pytest.raises(GpumonError, match=r"\$GPUMON_RUNTIME_DIR$") as refused:
            claim_runtime_dir(environ_of(tmp_path))
        folder, trouble = runtime_dir_to_be(environ_of(tmp_path / "new"))

        assert str(refused.value).count(str(tmp_path)) == 1
        assert (folder, trouble.split()[:2]) == (None, [f"{tmp_path / 'new'}:", str(tmp_path)])

    def test_is_no_pattern_whatever_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "1").mkdir()
        folder = claim_runtime_dir(environ_of(tmp_path / "[1]"))
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(folder))

        assert [*folders_to_read(ring_folders(folder))] == [str(folder)]


def is_locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a"


@pytest.fixture
def shared(folder: Path) -> Path:
    """One that is there already, and that all users may read."""
    folder.mkdir()
    folder.chmod(0o755)
    return folder


@contextmanager
def holding(folder: Path) -> Iterator[LockedFolder]:
    held = LockedFolder(environ_of(folder))
    yield held
    held.close()


@pytest.fixture
def held(folder: Path) -> Iterator[LockedFolder]:
    with holding(folder) as held:
        yield held


class TestAFolderThatIsHeld:
    def test_is_locked_itself_and_has_no_more_in_it_than_before(
        self, held: LockedFolder, folder: Path
    ) -> None:
        assert is_locked(folder)
        assert [path.name for path in folder.iterdir()] == ["phases"]

    def test_has_no_second_holder_and_names_the_first(
        self, held: LockedFolder, folder: Path
    ) -> None:
        with pytest.raises(FolderInUseError, match=rf"pid {os.getpid()}\).* {folder}:"):
            LockedFolder(environ_of(folder))
        held.close()
        held.close()
        assert not is_locked(folder)

    def test_is_not_locked_itself_where_others_may_open_it(self, shared: Path) -> None:
        with holding(shared):
            assert not is_locked(shared)
            assert (is_locked(shared / "daemon"), mode(shared / "daemon")) == (True, 0o700)

        assert not is_locked(shared / "daemon")

    @as_root
    def test_keeps_no_lock_that_the_owner_of_the_folder_could_not_open(self, shared: Path) -> None:
        os.chown(shared, OTHER_UID, OTHER_UID)
        with holding(shared):
            within = {path.name for path in shared.iterdir()}

        assert within == {"daemon", "phases"}
        assert [path.name for path in shared.iterdir()] == ["phases"]

    def test_is_refused_where_others_may_open_what_is_to_be_locked(self, shared: Path) -> None:
        (shared / "daemon").mkdir()
        (shared / "daemon").chmod(0o755)

        with pytest.raises(GpumonError, match=f"{shared}/daemon: "):
            LockedFolder(environ_of(shared))

    def test_waits_for_a_cleaner_that_has_locked_it(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        threading.Timer(0.1, os.close, (descriptor,)).start()

        with holding(folder):
            assert is_locked(folder)


class TestAFolderThatIsKept:
    def test_is_made_again_as_it_was(self, shared: Path) -> None:
        (shared / "phases").mkdir()
        (shared / "phases").chmod(0o1777)
        with holding(shared) as held:
            shutil.rmtree(shared)
            held.keep()

            assert (mode(shared), mode(shared / "phases")) == (0o755, 0o1777)

    @pytest.mark.parametrize("name", ["", "phases", "daemon"])
    def test_gets_back_what_was_removed(self, shared: Path, name: str) -> None:
        with holding(shared) as held:
            shutil.rmtree(shared / name)

            assert str(held.keep()).split()[0] == str(shared / name)
            assert held.keep() is None
            assert (shared / name).is_dir()
            assert is_locked(shared / "daemon")

    def test_keeps_its_lock_where_others_may_open_it_from_now_on(
        self, held: LockedFolder, folder: Path
    ) -> None:
        for open_to in (0o755, 0o700):
            folder.chmod(open_to)
            assert held.keep() is None
            with pytest.raises(FolderInUseError):
                LockedFolder(environ_of(folder))

    def test_is_left_to_another_daemon_that_has_it_by_now(
        self, held: LockedFolder, folder: Path
    ) -> None:
        shutil.rmtree(folder)
        with holding(folder) as other:
            with pytest.raises(FolderInUseError):
                held.keep()

            assert other.keep() is None

    def test_leaves_the_lock_of_another_daemon_that_has_it_by_now(self, shared: Path) -> None:
        if os.getuid() == 0:
            os.chown(shared, OTHER_UID, OTHER_UID)  # then a daemon that ends removes its lock
        with holding(shared) as held:
            (shared / "daemon").rmdir()
            other = LockedFolder(environ_of(shared))
            with pytest.raises(FolderInUseError):
                held.keep()

        assert other.keep() is None
        assert is_locked(shared / "daemon")
        other.close()

    @pytest.mark.parametrize("trouble", ["open to others", "no folder", "a link"])
    def test_is_given_up_while_it_cannot_be_trusted(
        self, held: LockedFolder, folder: Path, trouble: str
    ) -> None:
        phases = folder / "phases"
        if trouble == "open to others":
            folder.chmod(0o777)
        else:
            phases.rmdir()
            (phases.touch if trouble == "no folder" else lambda: phases.symlink_to("."))()
        message, is_lost = held.keep(), held.is_lost
        if trouble == "open to others":
            folder.chmod(0o700)
        else:
            phases.unlink()

        assert ("by others" if trouble == "open to others" else str(phases)) in str(message)
        assert (is_lost, held.keep(), held.is_lost) == (True, None, False)
        assert is_locked(folder)

    def test_leaves_no_descriptor_open_however_often_it_goes(
        self, held: LockedFolder, folder: Path
    ) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            shutil.rmtree(folder)
            held.keep()
            folder.chmod(0o777)
            held.keep()
            folder.chmod(0o700)
            held.keep()

        assert len(list(Path("/proc/self/fd").iterdir())) == before

"""Specification of the daemon's folder: its own, no link, found again while it is fresh."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from gpumon.core.units import NS_PER_S
from gpumon.errors import GpumonError
from gpumon.sources.runtime_dir import (
    claim_runtime_dir,
    find_state_file,
    ring_folders,
    runtime_dir_trouble,
)


def said(folder: Path) -> dict[str, str]:
    return {"GPUMON_RUNTIME_DIR": str(folder)}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestADaemonsFolder:
    def test_is_made_for_its_owner_alone_whatever_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            folder = claim_runtime_dir(said(tmp_path / "a" / "b"))
        finally:
            os.umask(before)

        assert (mode(folder), mode(folder / "phases")) == (0o700, 0o700)

    def test_may_be_there_already(self, tmp_path: Path) -> None:
        first = claim_runtime_dir(said(tmp_path / "a"))

        assert claim_runtime_dir(said(tmp_path / "a")) == first

    def test_of_a_user_lies_in_the_session(self, tmp_path: Path) -> None:
        uid = os.getuid() or 65_534
        session = tmp_path / "session"
        session.mkdir()
        if os.getuid() == 0:
            os.chown(session, uid, -1)
        environ = {"XDG_RUNTIME_DIR": str(session)}

        trouble = runtime_dir_trouble(environ, uid)

        assert trouble is None

    @pytest.mark.parametrize("name", ["link", "file", "open"])
    def test_is_refused_where_it_cannot_be_trusted(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        (tmp_path / "file").write_text("")
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)

        with pytest.raises(GpumonError, match=str(tmp_path / name)):
            claim_runtime_dir(said(tmp_path / name))
        assert runtime_dir_trouble(said(tmp_path / name))

    def test_that_cannot_be_written_is_named_once_with_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # the superuser may always

        with pytest.raises(GpumonError) as refused:
            claim_runtime_dir(said(tmp_path))

        assert str(refused.value) == (
            f"no runtime folder: {tmp_path} cannot be written: "
            "name a folder of yours in $GPUMON_RUNTIME_DIR"
        )
        trouble = f"{tmp_path / 'new'}: {tmp_path} cannot be written"
        assert runtime_dir_trouble(said(tmp_path / "new")) == trouble

    def test_is_checked_without_being_made(self, tmp_path: Path) -> None:
        assert runtime_dir_trouble(said(tmp_path / "a")) is None
        assert not (tmp_path / "a").exists()

    def test_is_where_rings_are_looked_for_first(self, tmp_path: Path) -> None:
        assert ring_folders(tmp_path)[0] == str(tmp_path)


class TestAStateFile:
    def write(self, folder: Path, taken_ns: object, period_ns: object = NS_PER_S) -> Path:
        path = folder / "state.json"
        path.write_text(json.dumps({"monotonic_ns": taken_ns, "period_ns": period_ns}))
        return path

    def test_is_found_while_it_is_fresh(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, 100 * NS_PER_S)

        assert find_state_file(said(tmp_path), now_ns=103 * NS_PER_S) == path
        assert find_state_file(said(tmp_path), now_ns=103 * NS_PER_S + 1) is None

    def test_stays_fresh_for_three_periods(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, 100 * NS_PER_S, 10 * NS_PER_S)

        assert find_state_file(said(tmp_path), now_ns=130 * NS_PER_S) == path

    def test_of_an_earlier_boot_is_not_fresh(self, tmp_path: Path) -> None:
        self.write(tmp_path, 10_000 * NS_PER_S)

        assert find_state_file(said(tmp_path), now_ns=5 * NS_PER_S) is None

    @pytest.mark.parametrize("body", ["", "[]", "{", "[" * 100_000, '{"monotonic_ns": "x"}'])
    def test_that_is_nonsense_is_none(self, tmp_path: Path, body: str) -> None:
        (tmp_path / "state.json").write_text(body)

        assert find_state_file(said(tmp_path), now_ns=NS_PER_S) is None

    def test_that_is_a_link_or_a_pipe_is_none(self, tmp_path: Path) -> None:
        real = self.write(tmp_path, 1)
        link, pipe = tmp_path / "link", tmp_path / "pipe"
        link.mkdir()
        pipe.mkdir()
        (link / "state.json").symlink_to(real)
        os.mkfifo(pipe / "state.json")

        assert find_state_file(said(link), now_ns=1) is None
        assert find_state_file(said(pipe), now_ns=1) is None

    def test_need_not_exist(self, tmp_path: Path) -> None:
        assert find_state_file(said(tmp_path / "nowhere")) is None

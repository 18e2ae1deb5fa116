"""``gpumon serve --users``: whether users are named."""

from __future__ import annotations

import argparse
import logging
import os
import pwd
from pathlib import Path

import pytest

from gpumon.cli import serve
from gpumon.errors import UsageError
from gpumon.sources.process_owners import hides_users, user_name


def args(*, users: bool = True, source: str = "nvml") -> argparse.Namespace:
    return argparse.Namespace(users=users, source=source)


@pytest.fixture(autouse=True)
def _visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "hides_users", lambda: False)


class TestUsers:
    def test_are_not_named_by_default(self) -> None:
        assert serve.user_names_of(args(users=False)) is None

    def test_are_named_as_in_passwd_else_by_number(self) -> None:
        name_of = serve.user_names_of(args())

        assert name_of is not None
        assert name_of(os.getuid()) == pwd.getpwuid(os.getuid()).pw_name
        assert name_of(3_999_999) == "3999999"

    def test_have_names_that_are_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = pwd.struct_passwd(("ann\n\x1b[31m", "x", 7, 7, "", "/", "/bin/sh"))
        monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)

        assert user_name(7).isprintable()

    def test_are_not_named_where_proc_hides_them(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(serve, "hides_users", lambda: True)
        with caplog.at_level(logging.WARNING):
            assert serve.user_names_of(args()) is None

        assert "--users has no effect" in caplog.text

    def test_of_a_recording_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="--users needs a live source"):
            serve.user_names_of(args(source=f"replay:{tmp_path}/night.gpumon"))


def test_proc_hides_users_if_it_does_not_show_process_1(tmp_path: Path) -> None:
    assert hides_users(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "status").write_text("Uid:\t0\t0\t0\t0\n")
    assert not hides_users(tmp_path)

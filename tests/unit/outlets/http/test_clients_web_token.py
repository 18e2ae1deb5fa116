"""The token's file is long enough, and private."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.errors import UsageError
from gpumon.outlets.http.clients import read_token

TOKEN = "0123456789abcdef"


def file_of(folder: Path, content: bytes, mode: int = 0o600) -> str:
    path = folder / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


class TestAFile:
    @pytest.mark.parametrize("mode", [0o600, 0o400, 0o640])
    @pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
    def test_holds_the_token_and_at_most_a_line_break(
        self, tmp_path: Path, ending: bytes, mode: int
    ) -> None:
        token = read_token(file_of(tmp_path, TOKEN.encode() + ending, mode))

        assert token.is_shown(f"Bearer {TOKEN}")

    @pytest.mark.parametrize(
        ("content", "mode"),
        [
            *((content, 0o600) for content in (
                b"", b"\n", TOKEN[:-1].encode(), b"two words of a token", b"\xff" * 20, b"x" * 4097,
            )),
            *((TOKEN.encode(), mode) for mode in (0o644, 0o604, 0o666)),
        ],
    )  # fmt: skip
    def test_with_a_bad_token_or_readable_by_all_users_is_refused(
        self, tmp_path: Path, content: bytes, mode: int
    ) -> None:
        with pytest.raises(UsageError):
            read_token(file_of(tmp_path, content, mode))

    @pytest.mark.parametrize("name", ["none", "."])
    def test_that_is_not_there_or_a_folder_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError):
            read_token(str(tmp_path / name))

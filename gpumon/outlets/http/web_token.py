"""``--web-token-file``: the word by which somebody beyond loopback gets the page."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import Final

from gpumon.errors import UsageError

_SHORTEST: Final = 16
_LONGEST: Final = 4_096
_OPTION: Final = "--web-token-file"


class WebToken:
    """Knows the token when it is shown: as HTTP Basic password, whatever the user, or as Bearer."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def is_shown(self, authorization: str) -> bool:
        """Whether that ``Authorization`` field shows it; takes as long for any wrong one."""
        import hmac  # brings OpenSSL along: only where there is a token

        scheme, _, shown = authorization.partition(" ")
        word = shown.strip().encode("latin-1", "replace")
        if scheme.lower() == "basic":
            try:
                word = base64.b64decode(word, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(word, self._token)


def read_token(path: str) -> WebToken:
    """The token in a file: all of it, without white space at its ends.

    Raises:
        UsageError: The file is not there, is readable by others than its
            owner and group, or holds no token of 16 printable characters or more.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(_LONGEST + 1).strip()
    except OSError as error:
        raise UsageError(f"{_OPTION} {path}: {error.strerror or error}") from error
    if mode & stat.S_IROTH:
        raise UsageError(f"{_OPTION} {path} may be read by everybody: chmod 600 it")
    if not _SHORTEST <= len(token) <= _LONGEST or not all(0x21 <= byte <= 0x7E for byte in token):
        raise UsageError(
            f"{_OPTION} {path} must hold one word of {_SHORTEST} to {_LONGEST} ASCII characters: "
            "openssl rand -hex 32 makes one"
        )
    return WebToken(token)

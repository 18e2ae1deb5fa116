"""Identify clients: loopback or not, what counts as one peer, and the token."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.errors import UsageError
from gpumon.outlets.http.peer_user import End, peer_user

_SHARED_PREFIX_BITS: Final = 64
"""One machine may use any address of an IPv6 network of this prefix length."""


class Client(NamedTuple):
    """The other end of a connection.

    Attributes:
        key: What counts as one peer: an IPv4 address, or an IPv6 /64.
        is_local: Whether the peer's address is loopback: a process of this machine.
        came_to_loopback: Whether the listener is on loopback, which no other machine can reach.
        ends: Its address and port, and those of this end; ``None``: unknown.
    """

    key: str
    is_local: bool
    came_to_loopback: bool
    ends: tuple[End, End] | None = None

    def user(self) -> int | None:
        """The user whose process on this machine connected; ``None``: unknown, or not of it."""
        return peer_user(*self.ends) if self.is_local and self.ends is not None else None


def client_of(peer_host: str, listening_on: str) -> Client:
    """The client of a socket's peer address (IPv6 may contain IPv4, and a zone).

    >>> client_of("127.0.0.1", "0.0.0.0")
    Client(key='127.0.0.1', is_local=True, came_to_loopback=False, ends=None)
    >>> client_of("2001:db8::7", "::").key
    '2001:db8::/64'
    """
    address = ipaddress.ip_address(peer_host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    key = str(address)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        key = str(ipaddress.ip_network((address, _SHARED_PREFIX_BITS), strict=False))
    return Client(key, address.is_loopback, is_loopback(listening_on))


def is_loopback(host: str) -> bool:
    """Whether an address or name can only mean this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    name = host.lower().rstrip(".")
    if name in ("localhost", "::1") or name.endswith(".localhost"):
        return True
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdecimal() for part in parts)


def host_name(header: str) -> str:
    """The name in a ``Host`` header, without its port.

    >>> host_name("localhost:19835"), host_name("[::1]:19835"), host_name("::1")
    ('localhost', '::1', '::1')
    """
    header = header.strip()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header if header.count(":") > 1 else header.partition(":")[0]


# -- ``--web-token-file``: the token with which other machines get the page ---

_SHORTEST: Final = 16
_LONGEST: Final = 4_096


class WebToken:
    """The token, accepted as HTTP Basic password of any user, or as Bearer."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def is_shown(self, authorization: str) -> bool:
        """Whether the ``Authorization`` field has the token, compared in constant time."""
        import hmac  # loads OpenSSL: only if there is a token

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
    """Read the token of ``--web-token-file``.

    Raises:
        UsageError: As ``token_in``.
    """
    return WebToken(token_in(path, "--web-token-file"))


def token_in(path: str, option: str) -> bytes:
    """The token in a file that an option names, without white space at its ends.

    Raises:
        UsageError: The file is missing, is readable by all users, or has no token of 16 to 4,096
            printable characters.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(_LONGEST + 1).strip()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}") from error
    if mode & stat.S_IROTH:
        raise UsageError(f"{option} {path} can be read by all users: chmod 600 it")
    if not _SHORTEST <= len(token) <= _LONGEST or not all(0x21 <= byte <= 0x7E for byte in token):
        raise UsageError(
            f"{option} {path} must have one word of {_SHORTEST} to {_LONGEST} ASCII characters: "
            "openssl rand -hex 32 makes one"
        )
    return token

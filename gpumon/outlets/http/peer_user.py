"""Which user of this machine made a connection, by the kernel's table of sockets.

Source: proc_net_tcp.txt of the kernel's documentation. Its rows belong to the network namespace of
this process, so a row exists only for a client in the same one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

End: TypeAlias = tuple[str, int]
"""An address without a zone, and a port."""

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED: Final = "01"
_UID_COLUMN: Final = 7


def peer_user(peer: End, own: End) -> int | None:
    """The user whose socket is the other end of a connection; ``None``: unknown.

    Args:
        peer: The other end, on this machine.
        own: The end of this process.
    """
    found = set()
    with contextlib.suppress(OSError, ValueError, IndexError):
        wanted = {
            (_row_end(ours, peer[1]), _row_end(theirs, own[1]))
            for ours, theirs in zip(_written(peer[0]), _written(own[0]), strict=True)
        }
        for row in _rows():
            if (row[1], row[2]) in wanted and row[3] == _ESTABLISHED:
                found.add(int(row[_UID_COLUMN]))
    return found.pop() if len(found) == 1 else None


def _rows() -> Iterator[list[str]]:
    for table in _TABLES:
        with contextlib.suppress(OSError), Path(table).open(encoding="ascii") as file:
            next(file, None)  # names of columns
            yield from map(str.split, file)


def _written(address: str) -> list[str]:
    """An address as the tables write it; an IPv4 address may be in both."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return [_words(found.packed)]
        found = found.ipv4_mapped
    return [_words(found.packed), _words(b"\0" * 10 + b"\xff\xff" + found.packed)]


def _words(packed: bytes) -> str:
    """Words of 32 bits, each a number of this machine's byte order.

    >>> _words(bytes([127, 0, 0, 1])) in ("0100007F", "7F000001")
    True
    """
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _row_end(address: str, port: int) -> str:
    return f"{address}:{port:04X}"

"""Who asks, and by which name: what can only mean this machine, and what counts as one peer."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

_SHARED_PREFIX_BITS: Final = 64
"""One machine may take any address of an IPv6 network of that length."""


class Caller(NamedTuple):
    """Whoever holds the other end of a connection.

    Attributes:
        key: What counts as one peer: an IPv4 address, or an IPv6 /64.
        is_local: The peer's address is loopback: a process of this machine.
        came_to_loopback: The address it came to is listened on as loopback,
            so that nobody from elsewhere can come that way.
    """

    key: str
    is_local: bool
    came_to_loopback: bool


def caller_of(peer_host: str, listening_on: str) -> Caller:
    """The caller behind an address.

    Args:
        peer_host: As the socket tells it: IPv6 may carry IPv4, and a zone.
        listening_on: The address of the listener that it came to.

    >>> caller_of("127.0.0.1", "0.0.0.0")
    Caller(key='127.0.0.1', is_local=True, came_to_loopback=False)
    >>> caller_of("2001:db8::7", "::").key
    '2001:db8::/64'
    """
    address = ipaddress.ip_address(peer_host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    key = str(address)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        key = str(ipaddress.ip_network((address, _SHARED_PREFIX_BITS), strict=False))
    return Caller(key, address.is_loopback, is_loopback(listening_on))


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

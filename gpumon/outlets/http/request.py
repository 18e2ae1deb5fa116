"""Parse the head of an HTTP request strictly: anything doubtful is refused with a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

LONGEST_HEAD_BYTES: Final = 16_384
_MAX_FIELDS: Final = 100

_END: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_FIELD: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_ABSOLUTE: Final = re.compile(r"http://([^/?#]*)(.*)", re.IGNORECASE)
# A name, an IPv4 address, or an IPv6 one in brackets, which some probes leave out.
_HOST: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._~-]*)(:[0-9]{0,5})?|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*"
)
_ONCE: Final = frozenset({"host", "authorization", "content-length"})


class Request(NamedTuple):
    """A parsed request.

    Attributes:
        method: As sent: ``GET``.
        path: As sent, not decoded; without the query and the host of an absolute target.
        query: Text after the question mark.
        host: Requested host with its port: that of an absolute target,
            else the ``Host`` field; ``None``: none.
        fields: Header fields by lowercase names.
        keeps_connection: Whether the client may send another request on the connection: not if
            a body follows, which is never read.
    """

    method: str
    path: str
    query: str
    host: str | None
    fields: Mapping[str, str]
    keeps_connection: bool = False


class Refused(NamedTuple):
    """Why a request is refused.

    Attributes:
        status: HTTP status.
        text: One sentence.
    """

    status: int
    text: str


def end_of_head(received: bytes | bytearray, searched: int = 0) -> int | None:
    r"""Position after the head; ``None``: it is not complete.

    Args:
        received: Everything received so far.
        searched: How many bytes were searched before.

    >>> end_of_head(b"GET / HTTP/1.1\r\n\r\nbody"), end_of_head(b"GET / HTTP/1.1\r\n")
    (18, None)
    """
    found = _END.search(received, max(0, searched - 3))
    return None if found is None else found.end()


def read_head(head: bytes | bytearray) -> Request | Refused:
    """Parse a complete head, up to the empty line."""
    first, *lines = [
        line.removesuffix("\r") for line in head.decode("latin-1").rstrip("\r\n").split("\n")
    ]
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        return Refused(400, "The first line must be such as GET /metrics HTTP/1.1.")
    if match[3] != "1":
        return Refused(505, "Only HTTP/1.1 and HTTP/1.0 are supported.")
    if len(lines) > _MAX_FIELDS:
        return Refused(431, f"More than {_MAX_FIELDS} header fields.")
    fields = _fields(lines)
    if isinstance(fields, Refused):
        return fields
    host = fields.get("host")
    if host is not None and _HOST.fullmatch(host) is None:
        return Refused(400, "The Host field names no host.")
    request = _request(match[1], match[2], host, fields)
    if isinstance(request, Refused) or match[4] == "0" or _ends_connection(fields):
        return request
    return request._replace(keeps_connection=True)


def _fields(lines: list[str]) -> dict[str, str] | Refused:
    fields: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            return Refused(400, "A header field must be such as Name: value, on one line.")
        name, value = field[1].lower(), field[2].rstrip(" \t")
        if name in fields and name in _ONCE:
            return Refused(400, f"The field {field[1]} may be given once.")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def _request(
    method: str, target: str, host: str | None, fields: Mapping[str, str]
) -> Request | Refused:
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is not None:  # RFC 9112, 3.2.2: then the Host field is ignored
        host, target = absolute[1], absolute[2] or "/"
        if not host or _HOST.fullmatch(host) is None:
            return Refused(400, "The target names no host.")
        if target.startswith("?"):
            target = f"/{target}"
    is_server_wide = target == "*" and method == "OPTIONS"
    if not target.startswith("/") and not is_server_wide and method != "CONNECT":
        return Refused(400, "The target must be a path such as /metrics.")
    path, _, query = target.partition("?")
    return Request(method, path, query, host, fields)


def _ends_connection(fields: Mapping[str, str]) -> bool:
    options = fields.get("connection", "").lower().split(",")
    has_body = "transfer-encoding" in fields or fields.get("content-length", "0") != "0"
    return has_body or any(option.strip() == "close" for option in options)

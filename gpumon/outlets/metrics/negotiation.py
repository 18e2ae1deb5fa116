"""Which format and which encoding a scraper prefers, by its header fields."""

from __future__ import annotations

import re
from collections.abc import Iterator

_QUALITY = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_OPENMETRICS = "application/openmetrics-text"
_PLAIN = ("text/plain", "text/*", "*/*")


def prefers_openmetrics(accept: str | None) -> bool:
    """Whether OpenMetrics is named and the plain text format is not preferred.

    >>> prefers_openmetrics("application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1")
    True
    >>> prefers_openmetrics("application/openmetrics-text;q=0.2, text/plain;q=0.3")
    False
    """
    qualities = _qualities(accept)
    wanted = qualities.get(_OPENMETRICS, 0.0)
    plain = next((qualities[name] for name in _PLAIN if name in qualities), 0.0)
    return wanted > 0.0 and wanted >= plain


def prefers_gzip(accept_encoding: str | None) -> bool:
    """Whether gzip is accepted, and identity is not preferred.

    >>> prefers_gzip("gzip"), prefers_gzip("gzip;q=0"), prefers_gzip("gzip;q=0.5, identity")
    (True, False, False)
    """
    qualities = _qualities(accept_encoding)
    gzip = qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0)))
    return gzip > 0.0 and gzip >= qualities.get("identity", 0.0)


def _qualities(field: str | None) -> dict[str, float]:
    """The highest quality of each name; what is not well-formed counts as refused."""
    found: dict[str, float] = {}
    for name, quality in _named(field or ""):
        found[name] = max(quality, found.get(name, 0.0))
    return found


def _named(field: str) -> Iterator[tuple[str, float]]:
    for element in field.split(","):
        name, *parameters = (part.strip().lower() for part in element.split(";"))
        qualities = [text[2:].strip() for text in parameters if text.startswith("q=")]
        if not qualities:
            yield name, 1.0
        elif _QUALITY.fullmatch(qualities[0]):
            yield name, float(qualities[0])

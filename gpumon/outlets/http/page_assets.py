"""The files of the live page, as they lie in ``gpumon/outlets/web``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent.with_name("web")
_TYPES: Final = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
_FILES: Final = MappingProxyType(
    {
        "/": "index.html",
        "/page.css": "page.css",
        "/page.js": "page.js",
        "/figures.js": "figures.js",
        "/gpus.js": "gpus.js",
        "/lanes.js": "lanes.js",
        "/order.js": "order.js",
        "/tables.js": "tables.js",
        "/troubles.js": "troubles.js",
        "/words.js": "words.js",
        "/favicon.svg": "favicon.svg",
        "/favicon.ico": "favicon.svg",
    }
)
"""Closed list: no part of a request is ever used as a path."""


class PageAsset(NamedTuple):
    """One file of the page."""

    content_type: str
    body: bytes


def page_asset(path: str) -> PageAsset | None:
    """The file that is served at this path; ``None`` if none is."""
    name = _FILES.get(path)
    return None if name is None else _read(name)


@cache
def _read(name: str) -> PageAsset:
    file = _FOLDER / name
    return PageAsset(_TYPES[file.suffix], file.read_bytes())

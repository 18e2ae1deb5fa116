"""A page that needs no network and runs no script: its head, style and foot."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Final

from gpumon import __version__
from gpumon.core.view.palette import DARK, LIGHT, Palette


def _variables(palette: Palette) -> str:
    used = ("paper", "text", "quiet", "rule", "busy", "lost")
    return " ".join(f"--{name}: {getattr(palette, name)};" for name in used)


_STYLE: Final = f"""
:root {{ color-scheme: light dark; {_variables(LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 72rem; padding: 1.2rem; background: var(--paper);
  color: var(--text);
  font: 15px/1.5 Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif;
  font-variant-numeric: tabular-nums; }}
h1 {{ margin: 0 0 .5rem; font-size: 1.45rem; line-height: 1.3; overflow-wrap: anywhere; }}
h2 {{ margin: 1.6rem 0 .4rem; font-size: 1rem; }}
p {{ margin: .25rem 0; overflow-wrap: anywhere; }}
.quiet, footer {{ color: var(--quiet); }}
.wide {{ overflow-x: auto; margin: .8rem 0; }}
.wide img {{ display: block; width: 100%; min-width: 44rem; height: auto; }}
table {{ border-collapse: collapse; font-size: .8rem; }}
th, td {{ padding: .3rem; text-align: right; vertical-align: bottom;
  border-bottom: 1px solid var(--rule); }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left; }}
thead th {{ color: var(--quiet); font-weight: 600; }}
tbody th {{ font-weight: 600; min-width: 8rem; }}
.bar {{ display: block; width: 10rem; height: .8rem; fill: var(--busy); }}
.bar.lost {{ fill: var(--lost); }}
ul {{ margin: .2rem 0; padding-left: 1.2rem; overflow-wrap: anywhere; }}
footer {{ margin-top: 2rem; font-size: .85rem; }}
@page {{ size: landscape; margin: 12mm; }}
@media print {{
  :root {{ color-scheme: light; }}
  body {{ max-width: none; padding: 0; font-size: 10pt; }}
  .wide {{ overflow: visible; }}
  .wide img {{ min-width: 0; break-inside: avoid; }}
  table {{ font-size: 8pt; }}
  th, td {{ padding: .2rem .4rem; }}
  tbody th {{ min-width: 0; }}
  tr, li {{ break-inside: avoid; }}
  h2 {{ break-after: avoid; }}
}}
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def framed(title: str, lines: Sequence[str]) -> bytes:
    """The page with this content.

    It runs no script and loads nothing, and its policy forbids both.

    Args:
        title: Text, escaped here.
        lines: HTML.
    """
    page = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        *lines,
        f"<footer>Made by gpumon {escape(__version__)}.</footer>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(page).encode()

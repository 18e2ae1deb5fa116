"""``docs/accuracy-tables.md``: commands write its tables between marks; the rest is by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "accuracy-tables.md"


def put(mark: str, text: str) -> None:
    """Put what was measured between its marks; the rest of the page stays.

    Raises:
        ValueError: The page has no such marks.
    """
    begin, end = f"<!-- measured: {mark} -->", f"<!-- /measured: {mark} -->"
    page = PAGE.read_text(encoding="utf-8")
    before, is_begun, rest = page.partition(begin)
    _, is_ended, after = rest.partition(end)
    if not is_begun or not is_ended:
        raise ValueError(f"{PAGE.name} has no place for {mark!r}")
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    print(f"written: {PAGE.parent.name}/{PAGE.name}")

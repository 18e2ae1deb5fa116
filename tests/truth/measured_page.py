"""Pages whose tables commands write between marks; the rest is by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "accuracy-tables.md"


def put(mark: str, text: str, page: Path | None = None) -> None:
    """Put what was measured between its marks; the rest of the page stays.

    Args:
        mark: Names the place.
        text: What stands there from now on.
        page: Where; ``docs/accuracy-tables.md``, if not reported.

    Raises:
        ValueError: The page has no such marks.
    """
    begin, end = f"<!-- measured: {mark} -->", f"<!-- /measured: {mark} -->"
    path = page or PAGE
    before, is_begun, rest = path.read_text(encoding="utf-8").partition(begin)
    _, is_ended, after = rest.partition(end)
    if not is_begun or not is_ended:
        raise ValueError(f"{path.name} has no place for {mark!r}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    print(f"written: {path.parent.name}/{path.name}")

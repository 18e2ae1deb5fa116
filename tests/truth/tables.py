"""What the commands of ``make truth`` share: arguments, progress, Markdown tables and pages."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

DOCS: Final = Path(__file__).parents[2] / "docs"
TABLES: Final = DOCS / "accuracy-tables.md"
"""The page of every figure."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring, line by line."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar; call what it gives after each part."""
    with Progress(console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table.

    >>> print(table(["kind", "share"], [["late", "3 %"]]))
    | kind | share |
    |---|---|
    | late | 3 % |
    """
    lines = [f"| {' | '.join(map(str, row))} |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def put(mark: str, text: str, page: Path = TABLES) -> None:
    """Replace the text between two marks of a page.

    Raises:
        ValueError: The page has no such marks.
    """
    begin, end = f"<!-- measured: {mark} -->", f"<!-- /measured: {mark} -->"
    before, is_begun, rest = page.read_text(encoding="utf-8").partition(begin)
    _, is_ended, after = rest.partition(end)
    if not is_begun or not is_ended:
        raise ValueError(f"{page.name} has no marks for {mark!r}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    print(f"written: {page.parent.name}/{page.name}")

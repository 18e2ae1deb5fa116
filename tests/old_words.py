"""Words that gpumon no longer uses, and their occurrences.

``python -m tests.old_words gpumon/core docs/alerts.md`` lists them, a line each.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

ENDINGS: Final = {".py", ".md", ".js", ".html", ".css", ".yml", ".yaml", ".sh", ".c", ".toml"}
NOT_SEARCHED: Final = {
    "docs/glossary.md",  # lists what the old words became
    "tests/old_words.py",
    "tests/test_one_vocabulary.py",
}

KEPT: Final = re.compile(
    r"too[_ ]?(?:short|few)[_ ]?(?:pauses )?to[_ ]?judge|Nothing_?To_?Judge_?Error"
    r"|held_against|told_from"
    r"|\.tell\(\)|\bcan tell\b|-user SOMEBODY|internationalJoke\S*",
    re.IGNORECASE,
)
"""Names that scripts use, and idioms that stay."""

WORDS: Final = re.compile(
    r"\b(told|said|tells?|hears?|heard|anew|nobody|somebody|mend(?:s|ed|ing)?|brothers?|shall"
    r"|worlds|judg(?:e|es|ed|ing)|trainings|(?<=def )take)\b"
    r"|\b(of which|late batch(?:es)?|held against)\b"
    r"|\b(?:an?|each|every|another|one|this) (training)\b"
    r"(?!$| (?:runs?|scripts?|process(?:es)?|programs?|steps?|loops?|jobs?|threads?|code|data|set"
    r"|epochs?|batch(?:es)?|frameworks?|time|logs?|files?|speed|phases?|loss(?:es)?|loaders?|dataloaders?|``DataLoader``|back)\b)",
    re.IGNORECASE,
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def old_words(text: str) -> list[str]:
    """The old words of one line, identifiers split at underscores and capitals."""
    split = _CAMEL.sub(" ", KEPT.sub("", text)).replace("_", " ")
    return [next(filter(None, found.groups())).lower() for found in WORDS.finditer(split)]


def searched_files() -> Iterator[Path]:
    """Code and pages that git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in sorted(set(listed.stdout.splitlines()) - NOT_SEARCHED):
        path = ROOT / name
        if (path.suffix in ENDINGS or path.name == "Makefile") and path.is_file():
            yield path


def places_in(path: Path) -> list[str]:
    """Each old word of a file as ``file:line: word: the line``."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {word}: {line.strip()}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for word in old_words(line)
    ]


if __name__ == "__main__":
    wanted = [(ROOT / name).resolve() for name in sys.argv[1:]] or [ROOT]
    for one in searched_files():
        if any(one == folder or folder in one.parents for folder in wanted):
            for place in places_in(one):
                print(place)

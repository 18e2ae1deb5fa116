"""How a command says what went wrong: one sentence on standard error."""

from __future__ import annotations

import sys

from gpumon.core.label_text import label_text

_LONGEST = 4_000


def complain(sentence: object) -> None:
    """Print one line, whatever names of files and columns it repeats.

    Args:
        sentence: What went wrong; an error says it itself.
    """
    print(f"gpumon: {label_text(sentence, _LONGEST)}", file=sys.stderr)

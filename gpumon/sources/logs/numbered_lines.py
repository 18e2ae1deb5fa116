"""Lines with their numbers, where a line too long to be held comes in pieces."""

from __future__ import annotations

from collections.abc import Iterator


def numbered_lines(pieces: Iterator[str]) -> Iterator[tuple[int, str]]:
    r"""Each line with its number, from 1; of one in pieces only the first piece.

    >>> list(numbered_lines(iter(["a\n", "very ", "long\n", "b"])))
    [(1, 'a\n'), (2, 'very '), (3, 'b')]
    """
    number = 0
    is_within = False
    for piece in pieces:
        if not is_within:
            number += 1
            yield number, piece
        is_within = not piece.endswith("\n")

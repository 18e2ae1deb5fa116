"""One gate for every text that came from outside and is shown inside: names, labels, messages."""

from __future__ import annotations

from typing import Final

MAX_LABEL_LENGTH: Final = 128
"""Characters of outside text that any outlet repeats."""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_CUT_MARK: Final = "\N{HORIZONTAL ELLIPSIS}"


def label_text(raw: object, max_length: int = MAX_LABEL_LENGTH) -> str:
    r"""Outside text made safe for a scrape, a terminal and a page.

    Control characters, line breaks, bytes that were no UTF-8 (lone
    surrogates) and characters that turn the writing direction are each
    replaced with U+FFFD; letters of right-to-left scripts stay. A longer text
    is cut and ends with an ellipsis. ``None`` becomes the empty text, which
    Prometheus reads as *no such label*.

    Args:
        raw: Text, or anything that has a ``str()``.
        max_length: Most characters kept.

    Returns:
        Printable text that encodes as UTF-8, at most ``max_length`` characters.

    >>> label_text("train\n\x1b[31mred"), label_text(None)
    ('train��[31mred', '')
    """
    if raw is None:
        return ""
    text = raw if type(raw) is str else str(raw)
    if len(text) > max_length:
        text = text[: max_length - 1] + _CUT_MARK
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _REPLACEMENT for character in text)


def is_cut(text: str) -> bool:
    """Whether ``label_text`` had to cut this."""
    return text.endswith(_CUT_MARK)

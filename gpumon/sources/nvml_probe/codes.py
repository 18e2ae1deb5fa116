"""What NVML's codes mean to whoever watches a GPU, in words."""

from __future__ import annotations

from typing import Final

_MEANING: Final = {
    1: "the driver was reloaded",
    2: "the driver does not know this question",
    3: "not supported by this board",
    4: "not permitted for this user",
    6: "nothing to tell now",
    7: "it has more to tell than there was room for",
    9: "the driver is not loaded",
    10: "nothing happened meanwhile",
    12: "the library is missing",
    13: "not in this driver",
    15: "the GPU is lost",
    16: "the GPU wants a reset",
    17: "the operating system blocks the GPU",
    18: "library and driver are of different versions",
    20: "the GPU is in use by another program",
    25: "not in this form in this driver",
    26: "no longer in this driver",
    999: "an unknown error",
}


def meaning_of(code: int) -> str:
    """What an answer means, in a few words; empty for success.

    >>> meaning_of(3), meaning_of(0), meaning_of(77)
    ('not supported by this board', '', 'an answer without a name')
    """
    return "" if code == 0 else _MEANING.get(code, "an answer without a name")

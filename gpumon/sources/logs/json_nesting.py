"""How deep a place in JSON is, of a text of which only parts are looked at."""

from __future__ import annotations

import re
from typing import Final

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


class Nesting:
    """Counts the brackets of what is passed over between the parts that others read."""

    def __init__(self) -> None:
        self._depth: int | None = 0

    def begin(self) -> None:
        """A document begins: its first bracket is passed over, whatever was before."""
        self._depth = 1

    def lose(self) -> None:
        """Something was not passed over: nobody can tell any more."""
        self._depth = None

    def pass_over(self, text: str) -> None:
        r"""Count a part of the text, which must not begin within a string.

        >>> nesting = Nesting()
        >>> nesting.pass_over('{"a{": ['); nesting.is_open
        True
        >>> nesting.pass_over("]}"); nesting.is_open
        False
        """
        if self._depth is None:
            return
        bare = _STRING.sub("", text)
        if '"' in bare:
            bare = bare[: bare.index('"')] + "["  # a string that has no end
        opened = bare.count("{") + bare.count("[")
        self._depth = max(0, self._depth + opened - bare.count("}") - bare.count("]"))

    @property
    def is_open(self) -> bool:
        """Whether a bracket has no counterpart yet; ``False`` too where nobody can tell."""
        return bool(self._depth)

"""Objects in the place of others, which they mostly leave the word to."""

from __future__ import annotations

from typing import Any


class PassesOn:
    """Whatever it does not do itself is answered by the original.

    A subclass sets ``_original`` before anything else.
    """

    __slots__ = ()

    _original: Any

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_original":  # asked of a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._original, name)


class StandIn(PassesOn):
    """It also seems to be of the original's class."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._original)

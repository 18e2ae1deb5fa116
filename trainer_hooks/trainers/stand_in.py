"""An object in the place of another, which seems to be that other."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Whatever it does not do itself, its class included, is answered by the original.

    A subclass sets ``_original`` before anything else.
    """

    _original: Any

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._original)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_original":  # asked of a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._original, name)

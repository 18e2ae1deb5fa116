"""What is put in the place of a trainer's own: methods of single objects, and whole objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Method = Callable[..., Any]


class PatchedMethods:
    """Attributes put on instances in front of what their classes say, until ``remove``."""

    def __init__(self) -> None:
        self._placed: list[tuple[Any, str, Any, tuple[Any, ...]]] = []

    def place(self, owner: Any, name: str, around: Callable[[Any], Any]) -> bool:  # noqa: ANN401
        """Let ``owner.name`` be what ``around`` makes of it.

        Returns:
            Whether ``owner`` has that attribute at all.
        """
        present = getattr(owner, name, None)
        if present is None:
            return False
        own = vars(owner)
        before = (own[name],) if name in own else ()
        own[name] = placed = around(present)
        self._placed.append((owner, name, placed, before))
        return True

    def remove(self) -> None:
        """Give every attribute back that nobody else has replaced meanwhile."""
        while self._placed:
            owner, name, placed, before = self._placed.pop()
            own = vars(owner)
            if own.get(name) is not placed:
                continue
            if before:
                own[name] = before[0]
            else:
                del own[name]


class Proxy:
    """Whatever it does not do itself is answered by the original.

    A subclass sets ``_original`` before anything else.
    """

    __slots__ = ()

    _original: Any

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_original":  # asked of a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._original, name)


class TransparentProxy(Proxy):
    """It also seems to be of the original's class."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._original)

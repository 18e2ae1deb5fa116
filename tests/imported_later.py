"""Modules that a test imports at its top although their imports may be missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class ImportedLater:
    """A module, imported at its first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)

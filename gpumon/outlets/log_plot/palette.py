"""The colours of a picture, on light paper and on dark; told apart by colour-blind eyes too."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.outlets.log_plot.drawing import Ink

LIGHT: Final[Mapping[Ink, str]] = MappingProxyType(
    {
        Ink.PAPER: "#ffffff",
        Ink.TEXT: "#17202b",
        Ink.QUIET: "#566273",
        Ink.RULE: "#c3cbd5",
        Ink.BUSY: "#5b9bc8",
        Ink.IN_USE: "#ffffff",
        Ink.NOT_IN_USE: "#e6e9ee",
        Ink.UNOBSERVED: "#98a2ae",
        Ink.LOST: "#b93600",
        Ink.LOST_GROUND: "#ffd8bd",
    }
)
"""Blue and a dark vermilion: they differ in hue for every eye, and in lightness without hue."""

DARK: Final[Mapping[Ink, str]] = MappingProxyType(
    {
        Ink.PAPER: "#18202a",
        Ink.TEXT: "#e8edf3",
        Ink.QUIET: "#9aa7b6",
        Ink.RULE: "#445264",
        Ink.BUSY: "#3f80b2",
        Ink.IN_USE: "#10161d",
        Ink.NOT_IN_USE: "#2a3542",
        Ink.UNOBSERVED: "#66748a",
        Ink.LOST: "#ff9a63",
        Ink.LOST_GROUND: "#5b2b12",
    }
)

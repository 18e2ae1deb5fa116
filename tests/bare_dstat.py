"""A host with as little as the dstat plugin needs, whose colours a test can read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.builders_dstat import PLUGIN

DASHES = ["-", "-", "-"]


class BareHost:
    """As much of dstat's base class as the plugin leans on."""

    vars: list[str]
    cols: int

    def statwidth(self) -> int:
        return len(self.vars) * (self.colwidth() + 1) - 1

    def colwidth(self) -> int:
        raise NotImplementedError("the plugin has columns of its own widths")


class Table:
    """The plugin in a host whose colours are words, so that a test can read them.

    Args:
        file_name: What the host calls the plugin's file: by that it chooses its columns.
        before: Plugins that the host has loaded already.
        options: Of the host.
    """

    def __init__(
        self, file_name: str = "dstat_gpu", before: Sequence[Any] = (), **options: Any
    ) -> None:
        self.scope: dict[str, Any] = {
            "dstat": BareHost,
            "totlist": list(before),
            "op": SimpleNamespace(**{"delay": 1, "full": False, "output": False, **options}),
            "step": options.get("delay", 1),
            "ansi": {"reset": ""},
            "char": {"colon": ":", "sep": ","},
            "theme": {
                **dict.fromkeys(("subtitle", "frame", "default"), ""),
                **{"error": "<error>", "text_lo": "<text>", "text_hi": "<dim text>"},
                "colors_lo": ("<red>", "<yellow>", "<green>", "<blue>"),
                "colors_hi": ("<dim red>", "<dim yellow>", "<dim green>", "<dim blue>"),
            },
        }
        names: dict[str, Any] = {}
        # Both hosts keep what the file defines apart from what its methods can see.
        exec(compile(PLUGIN.read_text(encoding="ascii"), str(PLUGIN), "exec"), self.scope, names)
        self.plugin = names["dstat_plugin"]()
        self.plugin.filename = file_name
        self.plugin.check()

    def row(self) -> str:
        """The next row, colours included."""
        self.plugin.extract()
        return str(self.plugin.show())

    def cells(self) -> list[str]:
        """The next row's cells, without colours."""
        return re.sub("<error>|<(dim )?(text|red|yellow|green)>|:", " ", self.row()).split()

"""Runs the cells that ``typist.py`` types."""

from __future__ import annotations

import code

from tests.truth.untagged import board

board.does("thinking")
code.InteractiveConsole().interact(banner="", exitmsg="")
